"""What certification noise is: a pure function of (seed, image index, phase, block)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from smoothheads.config.check import check_sigma
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise.law import NOISES, FloatLaw, NoiseLaw
from smoothheads.types import Grid, Phase, Pixels

_WORDS = 2**64


class Noise(Protocol):
    """Noisy samples of an image, made in whole blocks; the block size is part of the key.

    The samples depend on nothing but the seed and the arguments, so that a result does not depend on batch
    size, order, sharding, resume or which images are chosen.
    """

    @property
    def law(self) -> NoiseLaw:
        """What it is drawn from, with the theorem that holds for it."""
        ...

    @property
    def sigma(self) -> float:
        """Standard deviation per pixel; the radius must be computed with this very number."""
        ...

    @property
    def scope(self) -> str:
        """One sentence to print with a certificate: what it covers."""
        ...

    @property
    def block_size(self) -> int: ...

    def noisy(self, image: Pixels, index: int, phase: Phase, block: int) -> NDArray[np.float32]:
        """[block_size, channels, height, width] of x + noise in pixel units, not clipped."""
        ...

    def correction(self, dimension: int) -> float:
        """Upper bound on how much more likely any event is under this sampler than under the exact
        noise on `dimension` pixel values; it must be taken off p_lower."""
        ...


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


def make_noise(name: str, sigma: float, grid: Grid, seed: int, block_size: int) -> Noise:
    """Keyed noise of a law with its default settings."""
    return NOISES.get(name)().keyed(sigma, grid, seed, block_size)


def philox_key(seed: int, index: int, phase: Phase, block: int) -> NDArray[np.uint64]:
    """The two words of the key and the four of the first counter."""
    for name, value in (("seed", seed), ("image index", index), ("block", block)):
        if not 0 <= value < _WORDS:
            raise ConfigError(f"0 <= {name} < 2^64", str(value), f"choose a {name} inside that range")
    return np.array([seed, index, 0, block, int(phase), 0], dtype=np.uint64)


def keyed_bits(seed: int, index: int, phase: Phase, block: int) -> Philox:
    """The bit stream of one block; streams of different keys never overlap (below 2^64 draws each)."""
    key = philox_key(seed, index, phase, block)
    return Philox(key=key[:2], counter=key[2:])


def keyed_uniform(seed: int, index: int) -> float:
    """The W in (0, 1] of the randomised bound of one image, fixed before any noise is drawn."""
    bits = keyed_bits(seed, index, Phase.RANDOMIZED_BOUND, 0)
    return float(1.0 - Generator(bits).random())


def check_settings(sigma: float, grid: Grid, block_size: int) -> None:
    check_sigma(sigma)
    if not 1 <= grid.max_value <= 255:
        raise ConfigError(
            "a grid 0..q with 1 <= q <= 255", f"q = {grid.max_value}", "8-bit images have q = 255"
        )
    if block_size < 1:
        raise ConfigError("block size >= 1", str(block_size), "100 is usual")


def check_image(image: Pixels, grid: Grid) -> None:
    """Refuses what is not an image of the grid: on another scale the radius would mean something else."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.size == 0:
        raise SoundnessError(
            "an image [channels, height, width] of uint8 grid integers",
            f"shape {image.shape} of {image.dtype}",
            "quantise to the grid first; the certificate is for the grid image",
        )
    if grid.max_value < 255 and int(image.max()) > grid.max_value:
        raise SoundnessError(
            f"pixels 0..{grid.max_value}", f"{int(image.max())}", "pass the data set's own grid"
        )
