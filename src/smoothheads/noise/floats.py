"""Noise in float32, keyed like all other, of any law that can be drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from smoothheads.noise.base import check_image, check_settings, keyed_bits
from smoothheads.noise.law import FloatLaw
from smoothheads.types import Grid, Phase, Pixels


@dataclass(frozen=True, slots=True)
class FloatNoise:
    """The rounded sum x + noise carries a trace of x, so a network could recognise the clean image; the
    certificate is the theorem's only as far as that is neglected. GridNoise has no such gap."""

    law: FloatLaw
    sigma: float
    grid: Grid
    seed: int
    block_size: int

    def __post_init__(self) -> None:
        check_settings(self.sigma, self.grid, self.block_size)

    @property
    def scope(self) -> str:
        return self.law.scope

    def noisy(self, image: Pixels, index: int, phase: Phase, block: int) -> NDArray[np.float32]:
        check_image(image, self.grid)
        generator = Generator(keyed_bits(self.seed, index, phase, block))
        samples = self.law.draw(generator, (self.block_size, *image.shape), self.sigma)
        samples += np.divide(image, self.grid.max_value, dtype=np.float32)
        return samples

    def correction(self, dimension: int) -> float:  # noqa: ARG002
        return 0.0
