"""From a probability to a radius, rounded down; from a radius to samples and to integer perturbations."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction

from scipy import special

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.errors import ConfigError, SoundnessError

# Above the errors of ndtri and of the multiplication by sigma: relative, and absolute for p next to 1/2.
_RELATIVE, _ABSOLUTE = 1e-12, 1e-15
_MOST_SAMPLES = 10**12


def l2_radius(p_lower: float, sigma: float) -> float:
    """sigma * Phi^-1(p_lower) rounded down, and 0 where p_lower <= 1/2 (nothing is certified)."""
    check_sigma(sigma)
    if p_lower <= 0.5:
        return 0.0
    return max(0.0, sigma * quantile_below(p_lower))


def pair_radius(p_lower: float, p_upper: float, sigma: float) -> float:
    """sigma/2 * (Phi^-1(p_lower) - Phi^-1(p_upper)) rounded down, and 0 where the bounds do not separate.

    p_lower bounds the top class from below, p_upper every other class from above.
    """
    check_sigma(sigma)
    if p_lower <= p_upper:
        return 0.0
    return max(0.0, 0.5 * sigma * (quantile_below(p_lower) - quantile_above(p_upper)))


def quantile_below(p: float) -> float:
    """z with Phi(z) <= p, next to Phi^-1(p)."""
    _check_probability(p)
    z = float(special.ndtri(p))
    z -= _ABSOLUTE + _RELATIVE * abs(z)
    while special.ndtr(z) > p:
        z = math.nextafter(z, -math.inf)
    return z


def quantile_above(p: float) -> float:
    """z with Phi(z) >= p, next to Phi^-1(p)."""
    _check_probability(p)
    z = float(special.ndtri(p))
    z += _ABSOLUTE + _RELATIVE * abs(z)
    while special.ndtr(z) < p:
        z = math.nextafter(z, math.inf)
    return z


def probability_above(radius: float, sigma: float) -> float:
    """p >= Phi(radius / sigma), next to it: a class this likely is certified at `radius`."""
    check_sigma(sigma)
    check_radius(radius)
    p = float(special.ndtr(radius / sigma))
    miss = float(special.ndtr(-radius / sigma)) * (1 - 1e-12)
    return math.nextafter(max(p, 1 - miss), 2.0) if radius > 0 else 0.5


def ceiling(
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
        reached = ceiling(n, alpha, sigma)
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


def format_radius(radius: float) -> str:
    """Six decimals, rounded down."""
    return str(Decimal(radius).quantize(Decimal("0.000001"), rounding=ROUND_FLOOR))


def squared_grid_budget(radius: float, q: int) -> int:
    """Exact threat check: grid images m, m' are closer than `radius` iff sum (m' - m)^2 is at most this."""
    return math.ceil((q * Fraction(radius)) ** 2) - 1


def check_sigma(sigma: float) -> None:
    if not (math.isfinite(sigma) and sigma > 0):
        raise ConfigError("sigma > 0", f"{sigma:g}", "set sigma to a positive number")


def check_radius(radius: float) -> None:
    if not (math.isfinite(radius) and radius >= 0):
        raise ConfigError("radius >= 0", f"{radius:g}", "give a finite radius in pixel units")


def _check_probability(p: float) -> None:
    if not 0 < p < 1:
        raise SoundnessError(
            "a probability strictly between 0 and 1",
            repr(p),
            "no finite sample shows certainty; cap the bound",
        )
