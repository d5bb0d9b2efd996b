"""Noise in float32, keyed like all other: one law of the noise per class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from smoothheads.noise.base import check_image, check_settings, keyed_bits
from smoothheads.types import Grid, Phase, Pixels


@dataclass(frozen=True, slots=True)
class FloatNoise(ABC):
    """The rounded sum x + noise carries a trace of x, so a network could recognise the clean image; the
    certificate is the theorem's only as far as that is neglected. GridNoise has no such gap."""

    sigma: float
    grid: Grid
    seed: int
    block_size: int

    name: ClassVar[str]
    scope: ClassVar[str]

    def __post_init__(self) -> None:
        check_settings(self.sigma, self.grid, self.block_size)

    def noisy(self, image: Pixels, index: int, phase: Phase, block: int) -> NDArray[np.float32]:
        check_image(image, self.grid)
        generator = Generator(keyed_bits(self.seed, index, phase, block))
        copies = self._draw(generator, (self.block_size, *image.shape))
        copies += np.divide(image, self.grid.q, dtype=np.float32)
        return copies

    def correction(self, dimension: int) -> float:  # noqa: ARG002
        return 0.0

    @abstractmethod
    def _draw(self, generator: Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Independent noise of mean 0 and standard deviation sigma, in pixel units."""
