"""Gaussian noise in float32, as every published code has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from smoothheads.noise.floats import FloatNoise


@dataclass(frozen=True, slots=True)
class GaussianNoise(FloatNoise):
    name: ClassVar[str] = "gaussian"
    scope: ClassVar[str] = (
        "idealised arithmetic: the guarantee is for exact Gaussian noise and neglects that float32 rounds "
        "the noisy image"
    )

    def _draw(self, generator: Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        noise = generator.standard_normal(shape, dtype=np.float32)
        noise *= np.float32(self.sigma)
        return noise
