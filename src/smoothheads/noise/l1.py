"""Noise whose certificates are l1 balls: uniform (Yang et al. 2020) and Laplace (Teng et al. 2020).

Both are set by their standard deviation per pixel, like Gaussian noise, so that one sigma means noise of one
strength whatever its law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from smoothheads.noise.floats import FloatNoise


def half_width(sigma: float) -> float:
    """Uniform noise of deviation sigma fills [-half_width, half_width]."""
    return math.sqrt(3) * sigma


def laplace_scale(sigma: float) -> float:
    """Laplace noise of deviation sigma has this scale b: its density falls like exp(-|e| / b)."""
    return sigma / math.sqrt(2)


@dataclass(frozen=True, slots=True)
class UniformNoise(FloatNoise):
    name: ClassVar[str] = "uniform"
    scope: ClassVar[str] = (
        "radii are in the l1 norm; idealised arithmetic: the guarantee is for exact uniform noise and "
        "neglects that float32 rounds the noisy image"
    )

    def _draw(self, generator: Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        noise = generator.random(shape, dtype=np.float32)
        noise *= 2
        noise -= 1
        noise *= np.float32(half_width(self.sigma))
        return noise


@dataclass(frozen=True, slots=True)
class LaplaceNoise(FloatNoise):
    """Drawn as the difference of two exponentials, which has this law and needs no logarithm."""

    name: ClassVar[str] = "laplace"
    scope: ClassVar[str] = (
        "radii are in the l1 norm; idealised arithmetic: the guarantee is for exact Laplace noise and "
        "neglects that float32 rounds the noisy image"
    )

    def _draw(self, generator: Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        noise = generator.standard_exponential(shape, dtype=np.float32)
        noise -= generator.standard_exponential(shape, dtype=np.float32)
        noise *= np.float32(laplace_scale(self.sigma))
        return noise
