"""From a probability to an l1 radius and back, under uniform and Laplace noise of deviation sigma per pixel.

Radii are rounded down and probabilities up, by factors far above the errors of the arithmetic.
Uniform: Yang et al. 2020; Laplace: Teng et al. 2020.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.radius import check_radius, check_sigma
from smoothheads.errors import ConfigError
from smoothheads.noise.l1 import half_width, laplace_scale

Floats = NDArray[np.float64]
DOWN, UP = 1 - 1e-12, 1 + 1e-12


def uniform_radius(p_lower: float, sigma: float) -> float:
    """2 L (p_lower - 1/2) for noise that fills [-L, L], and 0 where p_lower <= 1/2."""
    check_bound(p_lower, sigma)
    return max(0.0, 2 * half_width(sigma) * (p_lower - 0.5) * DOWN)


def uniform_pair_radius(p_lower: float, p_upper: float, sigma: float) -> float:
    """With every other class at most p_upper: a change of norm r moves no probability by more than r / 2L."""
    check_bound(p_lower, sigma)
    return max(0.0, half_width(sigma) * (p_lower - p_upper) * DOWN)


def uniform_probability(radius: float, sigma: float) -> float:
    """A class this likely is certified at `radius`; 1 or more where none is."""
    check_sigma(sigma)
    check_radius(radius)
    return math.nextafter(0.5 + radius / (2 * half_width(sigma)) * UP, 2.0) if radius > 0 else 0.5


def uniform_unit_radius(p: Floats) -> Floats:
    return 2 * half_width(1.0) * (p - 0.5)


def laplace_radius(p_lower: float, sigma: float) -> float:
    """-b ln(2 (1 - p_lower)) for noise of scale b, and 0 where p_lower <= 1/2."""
    check_bound(p_lower, sigma)
    return max(0.0, -laplace_scale(sigma) * math.log(2 * (1 - p_lower)) * DOWN) if p_lower > 0.5 else 0.0


def laplace_pair_radius(p_lower: float, p_upper: float, sigma: float) -> float:
    """With every other class at most p_upper: a change of norm r changes no probability by more than a factor
    exp(r / b). The first class loses at most what its complement gains, and at most that factor: the better
    of the two radii holds."""
    check_bound(p_lower, sigma)
    gap = p_lower - p_upper
    if gap <= 0:
        return 0.0
    by_factor = 0.5 * math.log1p(gap / p_upper) if p_upper > 0 else 0.0
    return laplace_scale(sigma) * max(-math.log1p(-gap), by_factor) * DOWN


def laplace_probability(radius: float, sigma: float) -> float:
    """A class this likely is certified at `radius`; 1 where floating point cannot tell it from certainty."""
    check_sigma(sigma)
    check_radius(radius)
    miss = 0.5 * math.exp(-radius / laplace_scale(sigma)) * DOWN
    return math.nextafter(1 - miss, 2.0) if radius > 0 else 0.5


def laplace_unit_radius(p: Floats) -> Floats:
    return -laplace_scale(1.0) * (np.log1p(-p) + math.log(2))


def check_bound(p_lower: float, sigma: float) -> None:
    check_sigma(sigma)
    if not 0 <= p_lower < 1:
        raise ConfigError("0 <= p_lower < 1", repr(p_lower), "no finite sample shows certainty")
