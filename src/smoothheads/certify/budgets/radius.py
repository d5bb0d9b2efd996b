"""A radius within a tolerance of what n samples would give: a discarded pilot, then one fresh bound.

Pilot samples choose the class and the sample size and never enter the bound, so they cost none of alpha.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothheads.certify.algorithm import DAMAGED, CertifyParams, Run, Samples, check_sample_sizes
from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper, minimum_n
from smoothheads.certify.budgets.base import BUDGETS, Budget
from smoothheads.config.check import Count
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise import NoiseLaw
from smoothheads.types import Certificate, Counts, Phase

Floats = NDArray[np.float64]

_PILOTS = (100, 500, 2500)
_LONG = 20_000  # planned samples above which the largest pilot pays for itself
_HOPELESS = 0.01  # level of the test that gives up: its errors cost an abstention, never a wrong certificate
_LIKELY = 0.1  # error on each side of the interval of p that is planned for


@BUDGETS.register
@dataclass(frozen=True, kw_only=True)
class RadiusBudget(Budget):
    """Comes within TOLERANCE of the radius of n samples.

    It plans the fewest samples that lose, on average, at most max(tolerance * R, floor * sigma) of the radius
    R of n samples. Validity does not depend on the plan.
    """

    name: ClassVar[str] = "radius"

    n: Count = 100_000
    """Fresh samples at most."""
    tolerance: float = 0.05
    """Fraction of the radius that may be lost on average."""
    floor: float = 0.01
    """Radius, in sigmas, that may be lost in any case."""
    label_aware: bool = False
    """Test the true label instead of a chosen class: cheaper, for evaluation only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tolerance < 1:
            raise ConfigError(f"tolerance is {self.tolerance:g}; choose 0 <= tolerance < 1.")
        if not self.floor >= 0:
            raise ConfigError(f"floor is {self.floor:g}; choose 0 or more sigmas, for example 0.01.")

    @property
    def max_samples(self) -> int:
        return self.n

    @property
    def uses_label(self) -> bool:
        return self.label_aware

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        return _PILOTS

    def check(self, params: CertifyParams) -> None:
        check_sample_sizes(1, self.n, params)

    def run(self, params: CertifyParams) -> Run[Certificate]:
        self.check(params)
        # Step 1: a pilot chooses the class and plans n; 0 means that the image is hopeless.
        pilot, n = yield from self._pilot(params)
        # Step 2: n fresh samples bound the probability, as in CERTIFY.
        votes = (yield Samples(Phase.ESTIMATION, n)) if n else pilot * 0
        return self._conclude(params, pilot, votes)

    def recompute(
        self,
        params: CertifyParams,
        selection: Counts,
        votes: Counts,
        claimed: Certificate,  # noqa: ARG002
    ) -> Certificate:
        """Returns exactly the certificate of these votes, whether or not the pilot planned so many."""
        n0, n = int(selection.sum()), int(votes.sum())
        if n0 not in _PILOTS or n > self.n or (n > 0 and n0 == _PILOTS[0]):
            raise SoundnessError(
                f"Budget radius takes a pilot of {', '.join(map(str, _PILOTS))} samples and at most {self.n} "
                f"more, but the votes are of {n0} and {n}. {DAMAGED}"
            )
        return self._conclude(params, selection, votes)

    def _conclude(self, params: CertifyParams, pilot: Counts, votes: Counts) -> Certificate:
        target, n0, n = params.choose_class(pilot), int(pilot.sum()), int(votes.sum())
        k = int(votes[target])
        p_lower = clopper_pearson_lower(k, n, params.alpha) if n else 0.0
        return params.certificate(target, k, n, n0, p_lower=p_lower)

    def _pilot(self, params: CertifyParams) -> Generator[Samples, Counts, tuple[Counts, int]]:
        """Returns the votes of the pilot and the planned samples (0: hopeless)."""
        votes = yield Samples(Phase.PILOT, _PILOTS[0])
        n = 0
        for size in _PILOTS:
            seen = int(votes.sum())
            if size > seen:
                votes = votes + (yield Samples(Phase.PILOT, size - seen))
            k = int(votes[params.choose_class(votes)])
            if clopper_pearson_upper(k, size, _HOPELESS) < 0.5:
                return votes, 0
            if size == _PILOTS[0]:  # the first pilot only finds the hopeless ones
                continue
            n = self._plan(k, size, params)
            if n <= _LONG:
                break
        return votes, n

    def _plan(self, k: int, size: int, params: CertifyParams) -> int:
        """Returns enough samples for the worst p of an 80 % interval around k / size, in whole blocks."""
        low, high = clopper_pearson_lower(k, size, _LIKELY), clopper_pearson_upper(k, size, _LIKELY)
        # Nine values of p that are equally far apart on the variance-stabilised scale asin(sqrt(p)).
        likely = np.sin(np.linspace(math.asin(low**0.5), math.asin(high**0.5), 9)) ** 2
        sizes = samples_for_tolerance(
            likely, self.n, params.alpha, params.law, tolerance=self.tolerance, floor=self.floor
        )
        n = max(int(sizes.max()), minimum_n(params.alpha))
        return min(params.block * -(-n // params.block), self.n)


def expected_radius(p: Floats, n: NDArray[np.int64] | int, alpha: float, law: NoiseLaw) -> Floats:
    """Returns radius / sigma that n samples certify if exactly a fraction p of them votes for the class."""
    k = p * n
    lower = np.asarray(special.betaincinv(np.maximum(k, 1e-9), n - k + 1, alpha), dtype=np.float64)
    return np.maximum(law.unit_radius(lower), 0.0)


def samples_for_tolerance(
    p: Floats, n: int, alpha: float, law: NoiseLaw, *, tolerance: float, floor: float
) -> NDArray[np.int64]:
    """Returns the fewest samples whose expected radius is within max(tolerance * R, floor) of that of n."""
    best = expected_radius(p, n, alpha, law)
    goal = best - np.maximum(tolerance * best, floor)
    # All p are bisected at once.
    low, high = np.zeros(p.shape, np.int64), np.full(p.shape, n, np.int64)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        enough = expected_radius(p, np.maximum(middle, 1), alpha, law) >= goal
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high
