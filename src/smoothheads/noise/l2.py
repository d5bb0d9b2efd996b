"""Turns probabilities into l2 radii and back, under Gaussian noise of standard deviation sigma per pixel.

Radii are rounded down and probabilities up, so that rounding never makes a certificate wrong.
"""

from __future__ import annotations

import math

from smoothheads.config.check import check_radius, check_sigma
from smoothheads.errors import ConfigError, SoundnessError

DOWN, UP = 1 - 1e-12, 1 + 1e-12  # factors far above the errors of a few operations
# Above the errors of ndtri and of the multiplication by sigma: relative, and absolute for p next to 1/2.
_RELATIVE, _ABSOLUTE = 1e-12, 1e-15


def l2_radius(p_lower: float, sigma: float) -> float:
    """Returns sigma * Phi^-1(p_lower) rounded down, and 0 where p_lower <= 1/2 (nothing is certified)."""
    check_sigma(sigma)
    # Cohen et al. 2019, eq. 3 with p_B = 1 - p_A.
    if p_lower <= 0.5:
        return 0.0
    return max(0.0, sigma * quantile_below(p_lower))


def quantile_below(p: float) -> float:
    """Returns z with Phi(z) <= p, next to Phi^-1(p)."""
    from scipy import special

    _check_probability(p)
    # Step below ndtri by more than its error, then on until scipy's own Phi agrees that z is low enough.
    z = float(special.ndtri(p))
    z -= _ABSOLUTE + _RELATIVE * abs(z)
    while special.ndtr(z) > p:
        z = math.nextafter(z, -math.inf)
    return z


def quantile_above(p: float) -> float:
    """Returns z with Phi(z) >= p, next to Phi^-1(p)."""
    from scipy import special

    _check_probability(p)
    z = float(special.ndtri(p))
    z += _ABSOLUTE + _RELATIVE * abs(z)
    while special.ndtr(z) < p:
        z = math.nextafter(z, math.inf)
    return z


def probability_above(radius: float, sigma: float) -> float:
    """Returns p >= Phi(radius / sigma), next to it: a class this likely is certified at `radius`."""
    from scipy import special

    check_sigma(sigma)
    check_radius(radius)
    p = float(special.ndtr(radius / sigma))
    # Near 1 the complement is the accurate one of the two.
    miss = float(special.ndtr(-radius / sigma)) * (1 - 1e-12)
    return math.nextafter(max(p, 1 - miss), 2.0) if radius > 0 else 0.5


def _check_probability(p: float) -> None:
    if not 0 < p < 1:
        raise SoundnessError(
            f"A bound must lie strictly between 0 and 1, not at {p!r}: no sample shows certainty."
        )


def check_bound(p_lower: float, sigma: float) -> None:
    check_sigma(sigma)
    if not 0 <= p_lower < 1:
        raise ConfigError(f"p_lower must be from 0 to below 1, not {p_lower!r}: no sample shows certainty.")
