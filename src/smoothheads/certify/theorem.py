"""What each law of noise proves, and in which norm: the one place that ties a certificate to its noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothheads.certify import l1, radius
from smoothheads.errors import one_of

Norm = Literal["l1", "l2"]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Theorem:
    """A class that has probability p under the noise keeps the first place within a radius in `norm`.

    `sigma` is the standard deviation of the noise per pixel. Radii are rounded down, probabilities up.
    """

    norm: Norm
    radius: Callable[[float, float], float]
    """Of (p_lower, sigma); 0 where p_lower <= 1/2, for nothing is certified then."""
    pair_radius: Callable[[float, float, float], float]
    """Of (p_lower, p_upper, sigma) with every other class at most p_upper; 0 where they do not separate."""
    probability: Callable[[float, float], float]
    """Of (radius, sigma): a class this likely is certified at the radius; 1 or more where none is."""
    unit_radius: Callable[[Floats], Floats]
    """Radius / sigma of probabilities, below 0 where they are under 1/2; not rounded, for plans only."""


GAUSSIAN: Final = Theorem("l2", radius.l2_radius, radius.pair_radius, radius.probability_above, special.ndtri)
UNIFORM: Final = Theorem(
    "l1", l1.uniform_radius, l1.uniform_pair_radius, l1.uniform_probability, l1.uniform_unit_radius
)
LAPLACE: Final = Theorem(
    "l1", l1.laplace_radius, l1.laplace_pair_radius, l1.laplace_probability, l1.laplace_unit_radius
)
THEOREMS: Final = {"grid": GAUSSIAN, "gaussian": GAUSSIAN, "uniform": UNIFORM, "laplace": LAPLACE}
"""By the name of the noise."""


def theorem_of(noise: str) -> Theorem:
    if noise not in THEOREMS:
        raise one_of("noise", noise, THEOREMS)
    return THEOREMS[noise]
