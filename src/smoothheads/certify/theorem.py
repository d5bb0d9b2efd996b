"""What each law of noise proves, by its name."""

from __future__ import annotations

from typing import Final

from smoothheads.noise import NOISES, Gaussian, Laplace, NoiseLaw, Uniform

Theorem = NoiseLaw
GAUSSIAN: Final[NoiseLaw] = Gaussian()
UNIFORM: Final[NoiseLaw] = Uniform()
LAPLACE: Final[NoiseLaw] = Laplace()
THEOREMS: Final = {"grid": GAUSSIAN, "gaussian": GAUSSIAN, "uniform": UNIFORM, "laplace": LAPLACE}


def theorem_of(noise: str) -> NoiseLaw:
    return NOISES.get(noise)()
