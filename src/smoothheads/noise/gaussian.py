"""Gaussian noise in float32, as every published code has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothheads.noise.base import check_image, check_settings, keyed_bits
from smoothheads.types import Grid, Phase, Pixels


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """The rounded sum x + noise carries a trace of x, so a network could recognise the clean image; the
    certificate is the theorem's only as far as that is neglected. GridNoise has no such gap."""

    sigma: float
    grid: Grid
    seed: int
    block_size: int

    name: ClassVar[str] = "gaussian"
    scope: ClassVar[str] = (
        "idealised arithmetic: the guarantee is for exact Gaussian noise and neglects that float32 rounds "
        "the noisy image"
    )

    def __post_init__(self) -> None:
        check_settings(self.sigma, self.grid, self.block_size)

    def noisy(self, image: Pixels, index: int, phase: Phase, block: int) -> NDArray[np.float32]:
        check_image(image, self.grid)
        generator = np.random.Generator(keyed_bits(self.seed, index, phase, block))
        copies = generator.standard_normal((self.block_size, *image.shape), dtype=np.float32)
        copies *= np.float32(self.sigma)
        copies += np.divide(image, self.grid.q, dtype=np.float32)
        return copies

    def correction(self, dimension: int) -> float:  # noqa: ARG002
        return 0.0
