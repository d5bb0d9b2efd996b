"""A law of noise with its theorem: the one object that ties a certificate to what was sampled.

Nothing heavy is imported here: a law is also a setting, which is parsed before anything is computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from smoothheads.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    from smoothheads.noise.base import Noise
    from smoothheads.types import Grid

    Floats = NDArray[np.float64]

Norm = Literal["l1", "l2"]


class NoiseLaw(ABC):
    """A class that has probability p under the noise keeps the first place within a radius in `norm`.

    `sigma` is the standard deviation of the noise per pixel, whatever the law. Radii are rounded down,
    probabilities up. A component: a frozen dataclass, registered in NOISES.
    """

    registry: ClassVar[Registry[type[NoiseLaw]]]
    name: ClassVar[str]
    norm: ClassVar[Norm]

    @abstractmethod
    def radius(self, p_lower: float, sigma: float) -> float:
        """The certified radius; 0 where p_lower <= 1/2, for nothing is certified then."""

    @abstractmethod
    def pair_radius(self, p_lower: float, p_upper: float, sigma: float) -> float:
        """The radius with every other class at most p_upper; 0 where they do not separate."""

    @abstractmethod
    def probability(self, radius: float, sigma: float) -> float:
        """A class this likely is certified at the radius; 1 or more where none is."""

    @abstractmethod
    def unit_radius(self, p: Floats) -> Floats:
        """Radius / sigma of probabilities, below 0 where they are under 1/2; not rounded, for plans only."""

    @abstractmethod
    def keyed(self, sigma: float, grid: Grid, seed: int, block_size: int) -> Noise:
        """The sampler. Make it once per run, not once per image: it may prepare tables."""


class FloatLaw(NoiseLaw):
    """A law that is drawn in float32: it needs nothing but its theorem, `scope` and `draw`."""

    scope: ClassVar[str]
    """One sentence to print with a certificate: what it covers."""

    @abstractmethod
    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        """Independent noise of mean 0 and standard deviation sigma, in pixel units."""

    def keyed(self, sigma: float, grid: Grid, seed: int, block_size: int) -> Noise:
        from smoothheads.noise.base import FloatNoise

        return FloatNoise(self, sigma, grid, seed, block_size)


NOISES: Final[Registry[type[NoiseLaw]]] = Registry(
    "noise",
    "smoothheads.noises",
    {
        "grid": "noise.laws:GridGaussian",
        "gaussian": "noise.laws:FloatGaussian",
        "uniform": "noise.laws:Uniform",
        "laplace": "noise.laws:Laplace",
    },
)
NoiseLaw.registry = NOISES
