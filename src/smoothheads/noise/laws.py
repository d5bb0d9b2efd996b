"""Our laws of noise: Gaussian (exact on the grid, or in float32), uniform and Laplace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothheads.noise import l1, l2
from smoothheads.noise.law import FloatLaw, NoiseLaw, Norm

if TYPE_CHECKING:
    import numpy as np
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
        return l2.unit_radius(p)


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
        return l2.draw_gaussian(generator, shape, sigma)


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
        return l1.uniform_radius(p_lower, sigma)

    def pair_radius(self, p_lower: float, p_upper: float, sigma: float) -> float:
        return l1.uniform_pair_radius(p_lower, p_upper, sigma)

    def probability(self, radius: float, sigma: float) -> float:
        return l1.uniform_probability(radius, sigma)

    def unit_radius(self, p: Floats) -> Floats:
        return l1.uniform_unit_radius(p)

    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        return l1.draw_uniform(generator, shape, sigma)


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
        return l1.laplace_radius(p_lower, sigma)

    def pair_radius(self, p_lower: float, p_upper: float, sigma: float) -> float:
        return l1.laplace_pair_radius(p_lower, p_upper, sigma)

    def probability(self, radius: float, sigma: float) -> float:
        return l1.laplace_probability(radius, sigma)

    def unit_radius(self, p: Floats) -> Floats:
        return l1.laplace_unit_radius(p)

    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        return l1.draw_laplace(generator, shape, sigma)
