"""How many samples an image is worth, from what a pilot showed; validity never depends on it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.algorithm import Terms
from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothheads.lazy import special
from smoothheads.noise import GridGaussian, NoiseLaw

_GAUSSIAN = GridGaussian()


def plan_for_tolerance(k: int, size: int, n: int, terms: Terms, *, tolerance: float, floor: float) -> int:
    """Enough for the worst p of an 80 % interval."""
    low, high = clopper_pearson_lower(k, size, 0.1), clopper_pearson_upper(k, size, 0.1)
    likely = np.sin(np.linspace(math.asin(low**0.5), math.asin(high**0.5), 9)) ** 2
    return int(samples_for_tolerance(likely, n, terms.alpha, tolerance, floor, law=terms.law).max())


def plan_for_price(k: int, size: int, n: int, terms: Terms, *, price: float) -> int:
    """The cheapest on average over the likely p."""
    likely = special.betaincinv(k + 0.5, size - k + 0.5, np.linspace(0.05, 0.95, 10))
    return samples_for_price(likely, n, terms.alpha, price, law=terms.law)


def expected_radius(
    p: NDArray[np.float64], n: NDArray[np.int64] | int, alpha: float, *, law: NoiseLaw = _GAUSSIAN
) -> NDArray[np.float64]:
    """Radius / sigma that n samples certify when exactly a share p of them are hits."""
    k = p * n
    lower = np.asarray(special.betaincinv(np.maximum(k, 1e-9), n - k + 1, alpha), dtype=np.float64)
    return np.maximum(law.unit_radius(lower), 0.0)


def samples_for_tolerance(
    p: NDArray[np.float64],
    n: int,
    alpha: float,
    tolerance: float,
    floor: float,
    *,
    law: NoiseLaw = _GAUSSIAN,
) -> NDArray[np.int64]:
    """The fewest samples whose expected radius is within max(tolerance * R, floor) of that of n."""
    best = expected_radius(p, n, alpha, law=law)
    goal = best - np.maximum(tolerance * best, floor)
    low, high = np.zeros(p.shape, np.int64), np.full(p.shape, n, np.int64)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        enough = expected_radius(p, np.maximum(middle, 1), alpha, law=law) >= goal
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def samples_for_price(
    p: NDArray[np.float64], n: int, alpha: float, price: float, *, law: NoiseLaw = _GAUSSIAN
) -> int:
    """The samples that minimise samples + price * (expected radius lost), on average over p."""
    sizes = np.unique(np.geomspace(min(10, n), n, 80).round().astype(np.int64))
    gain = expected_radius(p[:, None], sizes[None, :], alpha, law=law).mean(axis=0)
    return int(sizes[np.argmin(sizes - price * gain)])
