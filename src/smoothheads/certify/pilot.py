"""A radius within a tolerance of what n_max samples would give: a discarded pilot, then one fresh bound.

Pilot samples choose the class and the sample size and never enter the bound, so they cost none of alpha.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothheads.certify.algorithm import Sampler, check_label, draw, require_samples, top_class
from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothheads.certify.radius import minimum_n
from smoothheads.certify.theorem import GAUSSIAN, Theorem
from smoothheads.errors import ConfigError
from smoothheads.types import ABSTAIN, Certificate, Phase

_PILOTS = (100, 500, 2500)
_LONG = 20_000  # planned samples above which the largest pilot pays for itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Radius:
    """Plans the fewest samples that lose, on average, at most max(tolerance * R, floor * sigma) of the radius
    R of n_max samples; or with a `price`, that minimise samples + price * loss / sigma (least ACR lost for a
    total of samples). Validity does not depend on the plan."""

    n_max: int = 100_000
    alpha: float = 0.001
    tolerance: float = 0.05
    floor: float = 0.01
    price: float | None = None
    label: int | None = None
    """The true label instead of a chosen class: for evaluation, where it is known."""
    step: int = 100
    """Sample sizes are multiples of this; the noise's block wastes none."""

    def __post_init__(self) -> None:
        require_samples(1, self.n_max, self.alpha)
        check_label(self.label)
        if not (0 <= self.tolerance < 1 and self.floor >= 0 and self.step >= 1):
            raise ConfigError(
                "0 <= tolerance < 1, floor >= 0, step >= 1", repr(self), "0.05 and 0.01 are usual"
            )
        if self.price is not None and not self.price > 0:
            raise ConfigError("price > 0", f"{self.price:g}", "4e5 loses about 4 % of ACR")

    def certify(
        self, sample: Sampler, *, sigma: float, correction: float = 0.0, theorem: Theorem = GAUSSIAN
    ) -> Certificate:
        require_samples(1, self.n_max, self.alpha, correction)
        aware = self.label is not None
        target, n, n0 = self._pilot(sample, theorem)
        if n == 0:
            return Certificate(ABSTAIN, 0.0, 0.0, 0, 0, n0, label_aware=aware)
        k = int(draw(sample, Phase.ESTIMATION, n)[target])
        p_lower = max(0.0, clopper_pearson_lower(k, n, self.alpha) - correction)
        radius = theorem.radius(p_lower, sigma)
        return Certificate(target if radius > 0 else ABSTAIN, radius, p_lower, k, n, n0, label_aware=aware)

    def _pilot(self, sample: Sampler, theorem: Theorem) -> tuple[int, int, int]:
        """The class, the planned samples (0: hopeless) and the samples of the pilot."""
        votes = draw(sample, Phase.PILOT, _PILOTS[0])
        target = n = 0
        for size in _PILOTS:
            seen = int(votes.sum())
            votes = votes + draw(sample, Phase.PILOT, size - seen) if size > seen else votes
            target = top_class(votes) if self.label is None else self.label
            if clopper_pearson_upper(int(votes[target]), size, 0.01) < 0.5:
                return target, 0, size
            if size == _PILOTS[0]:
                continue
            n = self._plan(int(votes[target]), size, theorem)
            if n <= _LONG:
                return target, n, size
        return target, n, _PILOTS[-1]

    def _plan(self, k: int, size: int, theorem: Theorem) -> int:
        """For a tolerance: enough for the worst p of an 80 % interval. For a price: cheapest on average."""
        if self.price is None:
            low, high = clopper_pearson_lower(k, size, 0.1), clopper_pearson_upper(k, size, 0.1)
            likely = np.sin(np.linspace(math.asin(low**0.5), math.asin(high**0.5), 9)) ** 2
            needed = samples_for_tolerance(
                likely, self.n_max, self.alpha, self.tolerance, self.floor, theorem=theorem
            )
            n = int(needed.max())
        else:
            likely = special.betaincinv(k + 0.5, size - k + 0.5, np.linspace(0.05, 0.95, 10))
            n = samples_for_price(likely, self.n_max, self.alpha, self.price, theorem=theorem)
        n = max(n, minimum_n(self.alpha))
        return min(self.step * -(-n // self.step), self.n_max)


def expected_radius(
    p: NDArray[np.float64], n: NDArray[np.int64] | int, alpha: float, *, theorem: Theorem = GAUSSIAN
) -> NDArray[np.float64]:
    """Radius / sigma that n samples certify when exactly a share p of them are hits."""
    k = p * n
    lower = np.asarray(special.betaincinv(np.maximum(k, 1e-9), n - k + 1, alpha), dtype=np.float64)
    return np.maximum(theorem.unit_radius(lower), 0.0)


def samples_for_tolerance(
    p: NDArray[np.float64],
    n_max: int,
    alpha: float,
    tolerance: float,
    floor: float,
    *,
    theorem: Theorem = GAUSSIAN,
) -> NDArray[np.int64]:
    """The fewest samples whose expected radius is within max(tolerance * R, floor) of that of n_max."""
    best = expected_radius(p, n_max, alpha, theorem=theorem)
    goal = best - np.maximum(tolerance * best, floor)
    low, high = np.zeros(p.shape, np.int64), np.full(p.shape, n_max, np.int64)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        enough = expected_radius(p, np.maximum(middle, 1), alpha, theorem=theorem) >= goal
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def samples_for_price(
    p: NDArray[np.float64], n_max: int, alpha: float, price: float, *, theorem: Theorem = GAUSSIAN
) -> int:
    """The samples that minimise samples + price * (expected radius lost), on average over p."""
    sizes = np.unique(np.geomspace(min(10, n_max), n_max, 80).round().astype(np.int64))
    gain = expected_radius(p[:, None], sizes[None, :], alpha, theorem=theorem).mean(axis=0)
    return int(sizes[np.argmin(sizes - price * gain)])
