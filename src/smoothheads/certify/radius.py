"""From samples to the largest radius and back; from a radius to integer perturbations."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.errors import ConfigError
from smoothheads.noise.l2 import l2_radius

_MOST_SAMPLES = 10**12


def max_radius(
    n: int, alpha: float, sigma: float, radius_of: Callable[[float, float], float] = l2_radius
) -> float:
    """The largest radius that n samples can certify at all: every one of them a hit. `radius_of` is the
    noise's own map from (p_lower, sigma)."""
    return radius_of(clopper_pearson_lower(n, n, alpha), sigma)


def minimum_n(alpha: float) -> int:
    """The fewest samples that can certify anything."""
    return samples_needed(0.0, 1.0, alpha)


def samples_needed(radius: float, sigma: float, alpha: float) -> int:
    """The fewest samples that, all of them hits, certify a positive radius of at least `radius`."""

    def enough(n: int) -> bool:
        reached = max_radius(n, alpha, sigma)
        return reached > 0 and reached >= radius

    high = 1
    while not enough(high):
        high *= 2
        if high > _MOST_SAMPLES:
            raise ConfigError("a radius below 7 sigma", f"{radius:g}", "lower it or raise sigma")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def squared_grid_budget(radius: float, q: int) -> int:
    """Exact threat check: grid images m, m' are closer than `radius` iff sum (m' - m)^2 is at most this."""
    return math.ceil((q * Fraction(radius)) ** 2) - 1
