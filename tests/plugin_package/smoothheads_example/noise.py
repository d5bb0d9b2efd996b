"""A noise law with its theorem: logistic noise, which proves l1 radii.

The density of logistic noise of scale s changes by a factor of at most exp(t / s) when it is moved by t.
Moving an image by d in l1 therefore changes the probability of any answer by a factor of at most exp(d / s),
which is all that the proof for Laplace noise of scale s uses: its radii hold here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothheads.noise import Laplace
from smoothheads.noise.base import FloatLaw, Norm

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

SCALE = 0.5513288954217921  # sqrt(3) / pi: the scale of logistic noise of standard deviation 1
LAPLACE = 0.7796968  # sqrt(2) times that, rounded down: the deviation of Laplace noise of the same scale


@dataclass(frozen=True, kw_only=True)
class Logistic(FloatLaw):
    """Logistic noise with radii in the l1 norm."""

    name: ClassVar[str] = "logistic"
    norm: ClassVar[Norm] = "l1"
    scope: ClassVar[str] = "radii are in the l1 norm; idealised arithmetic: float32 rounds the noisy image"

    def radius(self, p_lower: float, sigma: float) -> float:
        return Laplace().radius(p_lower, LAPLACE * sigma)

    def probability(self, radius: float, sigma: float) -> float:
        return Laplace().probability(radius, LAPLACE * sigma)

    def unit_radius(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        return LAPLACE * Laplace().unit_radius(p)

    def draw(self, generator: Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.float32]:
        return generator.logistic(0.0, SCALE * sigma, shape).astype("float32")
