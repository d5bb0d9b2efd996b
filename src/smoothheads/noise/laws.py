"""The laws of noise with their theorems: Gaussian (exact on the grid, or in float32), uniform and Laplace.

All are set by their standard deviation per pixel, so that one sigma means noise of one strength whatever its
law. Radii are rounded down and probabilities up, by factors far above the errors of the arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from smoothheads.config.check import check_radius, check_sigma
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise.base import NOISES, FloatLaw, Floats, Noise, NoiseLaw, Norm
from smoothheads.types import Grid

DOWN, UP = 1 - 1e-12, 1 + 1e-12  # factors far above the errors of a few operations
# Above the errors of ndtri and of the multiplication by sigma: relative, and absolute for p next to 1/2.
_RELATIVE, _ABSOLUTE = 1e-12, 1e-15


def _idealised(law: str) -> str:
    """Returns the scope of certificates under noise that is drawn in float32."""
    return (
        f"idealised arithmetic: the guarantee is for exact {law} noise and neglects that float32 rounds "
        "the noisy image"
    )


def l2_radius(p_lower: float, sigma: float) -> float:
    """Returns sigma * Phi^-1(p_lower) rounded down, and 0 where p_lower <= 1/2 (nothing is certified)."""
    check_sigma(sigma)
    # Cohen et al. 2019, eq. 3 with p_B = 1 - p_A.
    if p_lower <= 0.5:
        return 0.0
    return max(0.0, sigma * quantile_below(p_lower))


def quantile_below(p: float) -> float:
    """Returns z with Phi(z) <= p, next to Phi^-1(p)."""
    return _quantile(p, -1)


def quantile_above(p: float) -> float:
    """Returns z with Phi(z) >= p, next to Phi^-1(p)."""
    return _quantile(p, 1)


def _quantile(p: float, side: int) -> float:
    """Returns Phi^-1(p) rounded down (side -1) or up (side 1)."""
    from scipy import special

    if not 0 < p < 1:
        raise SoundnessError(
            f"A bound must lie strictly between 0 and 1, not at {p!r}: no sample shows certainty."
        )
    # Step away from ndtri by more than its error, then on until scipy's own Phi agrees with the side.
    z = float(special.ndtri(p))
    z += side * (_ABSOLUTE + _RELATIVE * abs(z))
    while side * (special.ndtr(z) - p) < 0:
        z = math.nextafter(z, side * math.inf)
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


def check_bound(p_lower: float, sigma: float) -> None:
    """Raises ConfigError for a lower bound that no votes can give."""
    check_sigma(sigma)
    if not 0 <= p_lower < 1:
        raise ConfigError(f"p_lower must be from 0 to below 1, not {p_lower!r}: no sample shows certainty.")


class _GaussianTheorem(NoiseLaw):
    """Theorem 1 of Cohen, Rosenfeld and Kolter 2019."""

    norm: ClassVar[Norm] = "l2"

    def radius(self, p_lower: float, sigma: float) -> float:
        return l2_radius(p_lower, sigma)

    def probability(self, radius: float, sigma: float) -> float:
        return probability_above(radius, sigma)

    def unit_radius(self, p: Floats) -> Floats:
        from scipy import special

        return np.asarray(special.ndtri(p), dtype=np.float64)


@NOISES.register
@dataclass(frozen=True, kw_only=True)
class GridGaussian(_GaussianTheorem):
    """Exact integer Gaussian noise, sound for grid images."""

    name: ClassVar[str] = "grid"

    def keyed(self, sigma: float, grid: Grid, seed: int, block_size: int) -> Noise:
        from smoothheads.noise.grid import GridNoise, GridTable  # imports this module for its law

        return GridNoise(GridTable.build(sigma, grid), seed, block_size)


@NOISES.register
@dataclass(frozen=True, kw_only=True)
class FloatGaussian(_GaussianTheorem, FloatLaw):
    """Gaussian noise in float32, as every published code has it."""

    name: ClassVar[str] = "gaussian"
    scope: ClassVar[str] = _idealised("Gaussian")

    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        noise = generator.standard_normal(shape, dtype=np.float32)
        noise *= np.float32(sigma)
        return noise


def half_width(sigma: float) -> float:
    """Returns lambda: uniform noise of standard deviation sigma fills [-lambda, lambda]."""
    return math.sqrt(3) * sigma


def laplace_scale(sigma: float) -> float:
    """Returns b: the density of Laplace noise of standard deviation sigma falls like exp(-|e| / b)."""
    return sigma / math.sqrt(2)


@NOISES.register
@dataclass(frozen=True, kw_only=True)
class Uniform(FloatLaw):
    """Uniform noise with radii in the l1 norm (Yang et al. 2020, Table 1)."""

    name: ClassVar[str] = "uniform"
    norm: ClassVar[Norm] = "l1"
    scope: ClassVar[str] = "radii are in the l1 norm; " + _idealised("uniform")

    def radius(self, p_lower: float, sigma: float) -> float:
        """Returns 2 lambda (p_lower - 1/2) for noise that fills [-lambda, lambda]."""
        check_bound(p_lower, sigma)
        # Boxes shifted by d in the l1 norm share at least 1 - |d| / (2 lambda) of their volume.
        return max(0.0, 2 * half_width(sigma) * (p_lower - 0.5) * DOWN)

    def probability(self, radius: float, sigma: float) -> float:
        check_sigma(sigma)
        check_radius(radius)
        return math.nextafter(0.5 + radius / (2 * half_width(sigma)) * UP, 2.0) if radius > 0 else 0.5

    def unit_radius(self, p: Floats) -> Floats:
        return 2 * half_width(1.0) * (p - 0.5)

    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        # From [0, 1) to [-lambda, lambda), in place: a block may be large.
        noise = generator.random(shape, dtype=np.float32)
        noise *= 2
        noise -= 1
        noise *= np.float32(half_width(sigma))
        return noise


@NOISES.register
@dataclass(frozen=True, kw_only=True)
class Laplace(FloatLaw):
    """Laplace noise with radii in the l1 norm (Teng et al. 2020)."""

    name: ClassVar[str] = "laplace"
    norm: ClassVar[Norm] = "l1"
    scope: ClassVar[str] = "radii are in the l1 norm; " + _idealised("Laplace")

    def radius(self, p_lower: float, sigma: float) -> float:
        """Returns -b ln(2 (1 - p_lower)) for noise of scale b (Teng et al. 2020)."""
        check_bound(p_lower, sigma)
        return max(0.0, -laplace_scale(sigma) * math.log(2 * (1 - p_lower)) * DOWN) if p_lower > 0.5 else 0.0

    def probability(self, radius: float, sigma: float) -> float:
        """Returns 1 where floating point cannot tell the probability from certainty."""
        check_sigma(sigma)
        check_radius(radius)
        # The inverse of the radius: another class has at most the probability exp(-R / b) / 2.
        miss = 0.5 * math.exp(-radius / laplace_scale(sigma)) * DOWN
        return math.nextafter(1 - miss, 2.0) if radius > 0 else 0.5

    def unit_radius(self, p: Floats) -> Floats:
        return -laplace_scale(1.0) * (np.log1p(-p) + math.log(2))

    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        # The difference of two exponentials has this law and needs no logarithm.
        noise = generator.standard_exponential(shape, dtype=np.float32)
        noise -= generator.standard_exponential(shape, dtype=np.float32)
        noise *= np.float32(laplace_scale(sigma))
        return noise
