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

from smoothheads.certify.algorithm import DAMAGED, Run, Samples, Terms, require_samples
from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothheads.certify.budgets.base import BUDGETS, Budget
from smoothheads.certify.radius import minimum_n
from smoothheads.config.check import Count, Positive
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.lazy import special
from smoothheads.noise import NoiseLaw
from smoothheads.types import Certificate, Counts, Phase

Floats = NDArray[np.float64]

_PILOTS = (100, 500, 2500)
_LONG = 20_000  # planned samples above which the largest pilot pays for itself


@BUDGETS.register
@dataclass(frozen=True, kw_only=True)
class RadiusBudget(Budget):
    """Comes within TOLERANCE of the radius of n samples, or spends what a radius is worth at a PRICE.

    It plans the fewest samples that lose, on average, at most max(tolerance * R, floor * sigma) of the radius
    R of n samples; or with a price, that minimise samples + price * loss / sigma (least ACR lost for a total
    of samples). Validity does not depend on the plan.
    """

    name: ClassVar[str] = "radius"

    n: Count = 100_000
    """Fresh samples at most."""
    tolerance: float = 0.05
    """Share of the radius that may be lost on average."""
    floor: float = 0.01
    """Radius, in sigmas, that may be lost in any case."""
    price: Positive | None = None
    """Samples that a radius of one sigma is worth, instead of a tolerance."""
    label_aware: bool = False
    """Test the true label instead of a chosen class: cheaper, for evaluation only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.tolerance < 1 and self.floor >= 0):
            got = f"{self.tolerance:g} and {self.floor:g}"
            raise ConfigError("0 <= tolerance < 1 and floor >= 0", got, "0.05 and 0.01 are usual")

    @property
    def max_samples(self) -> int:
        return self.n

    @property
    def uses_label(self) -> bool:
        return self.label_aware

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        return _PILOTS

    def check(self, terms: Terms) -> None:
        require_samples(1, self.n, terms.alpha, terms.correction)

    def run(self, terms: Terms) -> Run[Certificate]:
        self.check(terms)
        pilot, n = yield from self._pilot(terms)
        n0 = int(pilot.sum())
        votes = (yield Samples(Phase.ESTIMATION, n)) if n else pilot * 0
        return self._concluded(terms, pilot, votes, n0)

    def recompute(
        self,
        terms: Terms,
        selection: Counts,
        votes: Counts,
        claimed: Certificate,  # noqa: ARG002
    ) -> Certificate:
        """Exactly the certificate of these votes; whether the pilot planned so many is not asked."""
        n0, n = int(selection.sum()), int(votes.sum())
        if n0 not in _PILOTS or n > self.n or (n > 0 and n0 == _PILOTS[0]):
            raise SoundnessError(
                f"a pilot of {', '.join(map(str, _PILOTS))} samples and at most {self.n} more",
                f"{n0} and {n}",
                DAMAGED,
            )
        return self._concluded(terms, selection, votes, n0)

    def _concluded(self, terms: Terms, pilot: Counts, votes: Counts, n0: int) -> Certificate:
        target, n = terms.chosen(pilot), int(votes.sum())
        k = int(votes[target])
        p_lower = clopper_pearson_lower(k, n, terms.alpha) if n else 0.0
        return terms.certificate(target, k, n, n0, p_lower=p_lower)

    def _pilot(self, terms: Terms) -> Generator[Samples, Counts, tuple[Counts, int]]:
        """The votes of the pilot and the planned samples (0: hopeless)."""
        votes = yield Samples(Phase.PILOT, _PILOTS[0])
        n = 0
        for size in _PILOTS:
            seen = int(votes.sum())
            if size > seen:
                votes = votes + (yield Samples(Phase.PILOT, size - seen))
            k = int(votes[terms.chosen(votes)])
            if clopper_pearson_upper(k, size, 0.01) < 0.5:
                return votes, 0
            if size == _PILOTS[0]:
                continue
            n = self._plan(k, size, terms)
            if n <= _LONG:
                break
        return votes, n

    def _plan(self, k: int, size: int, terms: Terms) -> int:
        if self.price is None:  # enough for the worst p of an 80 % interval
            low, high = clopper_pearson_lower(k, size, 0.1), clopper_pearson_upper(k, size, 0.1)
            likely = np.sin(np.linspace(math.asin(low**0.5), math.asin(high**0.5), 9)) ** 2
            allowed = {"tolerance": self.tolerance, "floor": self.floor}
            n = int(samples_for_tolerance(likely, self.n, terms.alpha, terms.law, **allowed).max())
        else:  # the cheapest on average over the likely p
            likely = special.betaincinv(k + 0.5, size - k + 0.5, np.linspace(0.05, 0.95, 10))
            n = samples_for_price(likely, self.n, terms.alpha, terms.law, price=self.price)
        n = max(n, minimum_n(terms.alpha))
        return min(terms.block * -(-n // terms.block), self.n)


def expected_radius(p: Floats, n: NDArray[np.int64] | int, alpha: float, law: NoiseLaw) -> Floats:
    """Radius / sigma that n samples certify when exactly a share p of them are hits."""
    k = p * n
    lower = np.asarray(special.betaincinv(np.maximum(k, 1e-9), n - k + 1, alpha), dtype=np.float64)
    return np.maximum(law.unit_radius(lower), 0.0)


def samples_for_tolerance(
    p: Floats, n: int, alpha: float, law: NoiseLaw, *, tolerance: float, floor: float
) -> NDArray[np.int64]:
    """The fewest samples whose expected radius is within max(tolerance * R, floor) of that of n."""
    best = expected_radius(p, n, alpha, law)
    goal = best - np.maximum(tolerance * best, floor)
    low, high = np.zeros(p.shape, np.int64), np.full(p.shape, n, np.int64)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        enough = expected_radius(p, np.maximum(middle, 1), alpha, law) >= goal
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def samples_for_price(p: Floats, n: int, alpha: float, law: NoiseLaw, *, price: float) -> int:
    """The samples that minimise samples + price * (expected radius lost), on average over p."""
    sizes = np.unique(np.geomspace(min(10, n), n, 80).round().astype(np.int64))
    gain = expected_radius(p[:, None], sizes[None, :], alpha, law).mean(axis=0)
    return int(sizes[np.argmin(sizes - price * gain)])
