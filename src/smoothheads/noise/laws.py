"""Our laws of noise: Gaussian (exact on the grid, or in float32), uniform and Laplace.

All are set by their standard deviation per pixel, so that one sigma means noise of one strength whatever its
law. Radii are rounded down and probabilities up, by factors far above the errors of the arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from smoothheads.config.check import check_radius, check_sigma
from smoothheads.lazy import special
from smoothheads.noise import l2
from smoothheads.noise.l2 import DOWN, UP, check_bound
from smoothheads.noise.law import FloatLaw, NoiseLaw, Norm

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    from smoothheads.noise.base import Noise
    from smoothheads.noise.law import Floats
    from smoothheads.types import Grid


class _GaussianTheorem(NoiseLaw):
    """Cohen, Rosenfeld and Kolter 2019."""

    norm: ClassVar[Norm] = "l2"

    def radius(self, p_lower: float, sigma: float) -> float:
        return l2.l2_radius(p_lower, sigma)

    def pair_radius(self, p_lower: float, p_upper: float, sigma: float) -> float:
        return l2.pair_radius(p_lower, p_upper, sigma)

    def probability(self, radius: float, sigma: float) -> float:
        return l2.probability_above(radius, sigma)

    def unit_radius(self, p: Floats) -> Floats:
        z: Floats = special.ndtri(p)
        return z


@dataclass(frozen=True, kw_only=True)
class GridGaussian(_GaussianTheorem):
    """Exact integer Gaussian noise, sound for grid images."""

    name: ClassVar[str] = "grid"

    def keyed(self, sigma: float, grid: Grid, seed: int, block_size: int) -> Noise:
        from smoothheads.noise.grid import GridNoise, GridTable  # which has this law

        return GridNoise(GridTable.build(sigma, grid), seed, block_size)


@dataclass(frozen=True, kw_only=True)
class FloatGaussian(_GaussianTheorem, FloatLaw):
    """Gaussian noise in float32, as every published code has it."""

    name: ClassVar[str] = "gaussian"
    scope: ClassVar[str] = (
        "idealised arithmetic: the guarantee is for exact Gaussian noise and neglects that float32 rounds "
        "the noisy image"
    )

    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        noise = generator.standard_normal(shape, dtype=np.float32)
        noise *= np.float32(sigma)
        return noise


def half_width(sigma: float) -> float:
    """Uniform noise of deviation sigma fills [-half_width, half_width]."""
    return math.sqrt(3) * sigma


def laplace_scale(sigma: float) -> float:
    """Laplace noise of deviation sigma has this scale b: its density falls like exp(-|e| / b)."""
    return sigma / math.sqrt(2)


@dataclass(frozen=True, kw_only=True)
class Uniform(FloatLaw):
    """Uniform noise with radii in the l1 norm (Yang et al. 2020)."""

    name: ClassVar[str] = "uniform"
    norm: ClassVar[Norm] = "l1"
    scope: ClassVar[str] = (
        "radii are in the l1 norm; idealised arithmetic: the guarantee is for exact uniform noise and "
        "neglects that float32 rounds the noisy image"
    )

    def radius(self, p_lower: float, sigma: float) -> float:
        """2 L (p_lower - 1/2) for noise that fills [-L, L]."""
        check_bound(p_lower, sigma)
        return max(0.0, 2 * half_width(sigma) * (p_lower - 0.5) * DOWN)

    def pair_radius(self, p_lower: float, p_upper: float, sigma: float) -> float:
        """A change of norm r moves no probability by more than r / 2L."""
        check_bound(p_lower, sigma)
        return max(0.0, half_width(sigma) * (p_lower - p_upper) * DOWN)

    def probability(self, radius: float, sigma: float) -> float:
        check_sigma(sigma)
        check_radius(radius)
        return math.nextafter(0.5 + radius / (2 * half_width(sigma)) * UP, 2.0) if radius > 0 else 0.5

    def unit_radius(self, p: Floats) -> Floats:
        return 2 * half_width(1.0) * (p - 0.5)

    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        noise = generator.random(shape, dtype=np.float32)
        noise *= 2
        noise -= 1
        noise *= np.float32(half_width(sigma))
        return noise


@dataclass(frozen=True, kw_only=True)
class Laplace(FloatLaw):
    """Laplace noise with radii in the l1 norm (Teng et al. 2020)."""

    name: ClassVar[str] = "laplace"
    norm: ClassVar[Norm] = "l1"
    scope: ClassVar[str] = (
        "radii are in the l1 norm; idealised arithmetic: the guarantee is for exact Laplace noise and "
        "neglects that float32 rounds the noisy image"
    )

    def radius(self, p_lower: float, sigma: float) -> float:
        """-b ln(2 (1 - p_lower)) for noise of scale b."""
        check_bound(p_lower, sigma)
        return max(0.0, -laplace_scale(sigma) * math.log(2 * (1 - p_lower)) * DOWN) if p_lower > 0.5 else 0.0

    def pair_radius(self, p_lower: float, p_upper: float, sigma: float) -> float:
        """A change of norm r changes no probability by more than a factor exp(r / b). The first class loses
        at most what its complement gains, and at most that factor: the better of the two radii holds."""
        check_bound(p_lower, sigma)
        gap = p_lower - p_upper
        if gap <= 0:
            return 0.0
        by_factor = 0.5 * math.log1p(gap / p_upper) if p_upper > 0 else 0.0
        return laplace_scale(sigma) * max(-math.log1p(-gap), by_factor) * DOWN

    def probability(self, radius: float, sigma: float) -> float:
        """1 where floating point cannot tell it from certainty."""
        check_sigma(sigma)
        check_radius(radius)
        miss = 0.5 * math.exp(-radius / laplace_scale(sigma)) * DOWN
        return math.nextafter(1 - miss, 2.0) if radius > 0 else 0.5

    def unit_radius(self, p: Floats) -> Floats:
        return -laplace_scale(1.0) * (np.log1p(-p) + math.log(2))

    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        """The difference of two exponentials, which has this law and needs no logarithm."""
        noise = generator.standard_exponential(shape, dtype=np.float32)
        noise -= generator.standard_exponential(shape, dtype=np.float32)
        noise *= np.float32(laplace_scale(sigma))
        return noise
