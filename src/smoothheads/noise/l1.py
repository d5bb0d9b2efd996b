"""Noise whose certificates are l1 balls: uniform (Yang et al. 2020) and Laplace (Teng et al. 2020).

Both are set by their standard deviation per pixel, like Gaussian noise, so that one sigma means noise of one
strength whatever its law. Radii are rounded down and probabilities up, by factors far above the errors of the
arithmetic.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from smoothheads.config.check import check_radius, check_sigma
from smoothheads.noise.l2 import DOWN, UP, check_bound

Floats = NDArray[np.float64]


def half_width(sigma: float) -> float:
    """Uniform noise of deviation sigma fills [-half_width, half_width]."""
    return math.sqrt(3) * sigma


def laplace_scale(sigma: float) -> float:
    """Laplace noise of deviation sigma has this scale b: its density falls like exp(-|e| / b)."""
    return sigma / math.sqrt(2)


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


def draw_uniform(generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
    noise = generator.random(shape, dtype=np.float32)
    noise *= 2
    noise -= 1
    noise *= np.float32(half_width(sigma))
    return noise


def draw_laplace(generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
    """The difference of two exponentials, which has this law and needs no logarithm."""
    noise = generator.standard_exponential(shape, dtype=np.float32)
    noise -= generator.standard_exponential(shape, dtype=np.float32)
    noise *= np.float32(laplace_scale(sigma))
    return noise
