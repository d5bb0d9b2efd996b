"""The interfaces of noise laws and noise samplers, and the key of every sample.

A law is the one object that ties a certificate to what was sampled: it has the theorem that turns a
probability into a radius, and it makes the sampler. A sampler is a pure function of (seed, image index,
phase, block). A law is also a setting, so nothing heavier than NumPy is imported here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from smoothheads.config.check import check_sigma
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.registry import Registry
from smoothheads.types import Grid, Phase, Pixels

Floats: TypeAlias = NDArray[np.float64]
Norm: TypeAlias = Literal["l1", "l2"]


class Noise(ABC):
    """Noisy samples of an image, made in whole blocks; the block size is part of the key.

    The samples depend on nothing but the seed and the arguments, so that a result does not depend on batch
    size, order, sharding, resume or which images are chosen. The radius must be computed with the theorem of
    `law` and with this very `sigma`.
    """

    law: NoiseLaw
    sigma: float
    block_size: int

    @property
    @abstractmethod
    def scope(self) -> str:
        """One sentence to print with a certificate: what it covers."""

    @abstractmethod
    def noisy(self, image: Pixels, index: int, phase: Phase, block: int) -> NDArray[np.float32]:
        """Returns [block_size, channels, height, width] of x + noise in pixel units, not clipped."""

    def correction(self, dimension: int) -> float:  # noqa: ARG002
        """Returns an upper bound on how much more likely any event is under this sampler than under the
        exact noise on `dimension` pixel values. The certifier subtracts it from p_lower."""
        return 0.0


class NoiseLaw(ABC):
    """A class that has probability p under the noise stays the most likely one within a radius in `norm`.

    `sigma` is the standard deviation of the noise per pixel, whatever the law. Radii are rounded down and
    probabilities up. A component: a frozen dataclass, registered in NOISES.
    """

    registry: ClassVar[Registry[type[NoiseLaw]]]
    name: ClassVar[str]
    norm: ClassVar[Norm]

    @abstractmethod
    def radius(self, p_lower: float, sigma: float) -> float:
        """Returns the certified radius; 0 where p_lower <= 1/2, because nothing is certified there."""

    @abstractmethod
    def probability(self, radius: float, sigma: float) -> float:
        """Returns the probability at which a class is certified at the radius; 1 or more if none is."""

    @abstractmethod
    def unit_radius(self, p: Floats) -> Floats:
        """Returns radius / sigma, below 0 for probabilities under 1/2; not rounded, for plans only."""

    @abstractmethod
    def keyed(self, sigma: float, grid: Grid, seed: int, block_size: int) -> Noise:
        """Returns the sampler. Make it once per run, not once per image: it may prepare tables.

        Args:
            sigma: Standard deviation per pixel, for pixels in [0, 1].
            grid: The integers that pixels are multiples of (q in the formulas).
            seed: Key of the noise; choose it after the weights are fixed.
            block_size: Samples per block; part of the key.
        """


NOISES: Final[Registry[type[NoiseLaw]]] = Registry("noise", "smoothheads.noises")
NoiseLaw.registry = NOISES


class FloatLaw(NoiseLaw):
    """A law that is drawn in float32: it needs nothing but its theorem, `scope` and `draw`."""

    scope: ClassVar[str]
    """One sentence to print with a certificate: what it covers."""

    @abstractmethod
    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        """Returns independent noise of mean 0 and standard deviation sigma, in pixel units."""

    def keyed(self, sigma: float, grid: Grid, seed: int, block_size: int) -> Noise:
        return FloatNoise(self, sigma, grid, seed, block_size)


@dataclass(frozen=True, slots=True)
class FloatNoise(Noise):
    """The rounded sum x + noise carries a trace of x, so a network could recognise the clean image. The
    certificate is the theorem's only as far as that is neglected; GridNoise has no such gap."""

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
        # x + e in pixel units, not clipped: clipping is up to the network.
        samples = self.law.draw(generator, (self.block_size, *image.shape), self.sigma)
        samples += np.divide(image, self.grid.max_value, dtype=np.float32)
        return samples


def keyed_bits(seed: int, index: int, phase: Phase, block: int) -> Philox:
    """Returns the bit stream of a block; streams of different keys never overlap (below 2^64 draws each)."""
    for name, value in (("seed", seed), ("image index", index), ("block", block)):
        if not 0 <= value < 2**64:
            raise ConfigError(f"The {name} of the noise must be from 0 to 2^64 - 1, not {value}.")
    # Philox has a key of two words and a counter of four. Draws advance the counter's first word, so a
    # stream would have to draw 2^64 times before it met the stream of the next block or phase.
    words = np.array([seed, index, 0, block, int(phase), 0], dtype=np.uint64)
    return Philox(key=words[:2], counter=words[2:])


def check_settings(sigma: float, grid: Grid, block_size: int) -> None:
    """Raises ConfigError for noise that cannot be drawn."""
    check_sigma(sigma)
    if not 1 <= grid.max_value <= 255:
        raise ConfigError(
            f"A grid has pixels 0..q with q from 1 to 255 (8-bit: 255), not q = {grid.max_value}."
        )
    if block_size < 1:
        raise ConfigError(f"Noise is drawn in blocks of one sample or more, not {block_size}; 100 is usual.")


def check_image(image: Pixels, grid: Grid) -> None:
    """Refuses what is not an image of the grid: on another scale the radius would mean something else."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.size == 0:
        raise SoundnessError(
            "Noise is added to an image [channels, height, width] of uint8 grid integers, not to "
            f"{image.dtype} of shape {image.shape}: quantise it first, the certificate is for the grid image."
        )
    if grid.max_value < 255 and int(image.max()) > grid.max_value:
        raise SoundnessError(
            f"The image has a pixel of {int(image.max())} on a grid of 0..{grid.max_value}: "
            "pass the grid of its own data set."
        )
