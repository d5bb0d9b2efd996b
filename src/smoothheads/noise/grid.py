"""Exact Gaussian noise for grid images: integers only, until the noisy image is a whole number.

The base classifier is h(round(q (x + e))). Rounding is a function of x + e, so the theorem holds for it
unchanged; and for a grid image x = m / q the rounded value is m + K with a K whose law is known. K is drawn
by integer arithmetic, so that no rounding error can carry a trace of m into the noisy image. Whatever follows
(the division by q, the network) is part of h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise.base import Noise, NoiseLaw, check_image, check_settings, keyed_bits
from smoothheads.noise.laws import GridGaussian
from smoothheads.types import Grid, Phase, Pixels

BITS, CELL_BITS = 62, 46  # a uniform has 62 bits: 16 choose a cell of the lookup, 46 refine it
REACH = 9.3  # standard deviations covered; what lies beyond is in the total variation
UNDECIDED = int(np.iinfo(np.int16).min)

Steps = NDArray[np.int16]


@dataclass(frozen=True, slots=True, eq=False)
class GridTable:
    """The law of K = round(q e): P(K = j) = (T[j] - T[j-1]) / 2^62, where
    T[j] = floor(2^62 Phi((j + 1/2) / (q sigma)))."""

    sigma: float
    grid: Grid
    thresholds: NDArray[np.uint64]
    """T[j] for j = -reach .. reach - 1; K is -reach plus how many of them a 62-bit uniform has reached."""
    lookup: Steps
    """K for each value of the uniform's first 16 bits; the least int16 where they do not decide."""
    total_variation: float
    """Total variation distance between this K and the exact one, rounded up."""

    @classmethod
    def build(cls, sigma: float, grid: Grid) -> Self:
        check_settings(sigma, grid, 1)
        if REACH * sigma * grid.max_value > 2**15 - 2**9:
            raise ConfigError(f"With sigma {sigma:g} noisy pixels do not fit 16 bits: lower sigma.")
        thresholds, total_variation = _thresholds(sigma, grid.max_value)
        # A uniform is 16 bits of cell and 46 that refine it. Where both ends of a cell give the same K, the
        # cell decides; about one draw in a hundred falls into a cell that a threshold cuts.
        first = np.arange(2 ** (BITS - CELL_BITS), dtype=np.uint64) << np.uint64(CELL_BITS)
        last = first + np.uint64(2**CELL_BITS - 1)
        low, high = (np.searchsorted(thresholds, end, side="right") for end in (first, last))
        lookup = np.where(low == high, low - len(thresholds) // 2, UNDECIDED).astype(np.int16)
        return cls(sigma, grid, thresholds, lookup, total_variation)

    @property
    def reach(self) -> int:
        return len(self.thresholds) // 2


def _thresholds(sigma: float, q: int) -> tuple[NDArray[np.uint64], float]:
    """Returns T and the total variation between the law that it draws and the exact one."""
    import mpmath

    mp = mpmath.MPContext()  # a context of our own: mpmath's global precision stays untouched
    mp.dps = 30
    reach = math.ceil(REACH * q * sigma) + 1
    # Phi(z) = erfc(-z / sqrt(2)) / 2, with z = (j + 1/2) / (q sigma).
    scale = q * mp.mpf(sigma) * mp.sqrt(2)
    # Phi at j + 1/2 for j = -reach - 1 .. reach, each half from its own tail so that nothing cancels.
    tails = [mp.erfc((j + mp.mpf(1) / 2) / scale) / 2 for j in range(reach + 1)]
    exact = [*reversed(tails), *(1 - tail for tail in tails)]
    # T is Phi rounded down to 62 bits; what lies beyond the reach is given to the outermost K.
    thresholds = [int(mp.floor(mp.ldexp(p, BITS))) for p in exact[1:-1]]
    drawn = [0, 0, *thresholds, 2**BITS, 2**BITS]
    # Half the sum of |P_exact(K = j) - P_drawn(K = j)| over all j, both infinite ends included.
    steps_exact = [b - a for a, b in zip([mp.mpf(0), *exact], [*exact, mp.mpf(1)], strict=True)]
    steps_drawn = [mp.ldexp(b - a, -BITS) for a, b in pairwise(drawn)]
    variation = mp.fsum(abs(a - b) for a, b in zip(steps_exact, steps_drawn, strict=True)) / 2
    return np.array(thresholds, dtype=np.uint64), float(variation) * (1 + 1e-12)


@dataclass(frozen=True, slots=True, eq=False)
class GridNoise(Noise):
    """Sound noise: no floating-point operation before the integer m + K."""

    table: GridTable
    seed: int
    block_size: int
    sigma: float = field(init=False)
    law: NoiseLaw = field(default=GridGaussian(), init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", self.table.sigma)
        check_settings(self.sigma, self.table.grid, self.block_size)

    @property
    def scope(self) -> str:
        q = self.table.grid.max_value
        images = "8-bit images" if q == 255 else f"images of integers from 0 to {q}"
        return f"valid for {images}; the radius is the distance between {images}"

    def noisy(self, image: Pixels, index: int, phase: Phase, block: int) -> NDArray[np.float32]:
        # The division is the first step of the base classifier h: m + K is a whole number until here.
        steps = self.integers(image, index, phase, block)
        return np.divide(steps, np.float32(self.table.grid.max_value), dtype=np.float32)

    def integers(self, image: Pixels, index: int, phase: Phase, block: int) -> Steps:
        """Returns m + K, the noisy image before it becomes h's input."""
        check_image(image, self.table.grid)
        count = self.block_size * image.size
        bits = keyed_bits(self.seed, index, phase, block)
        # Four 16-bit cells from each word of the stream; most of them decide K by the lookup alone.
        # (mode="clip" only spares NumPy a bounds check: all cells are inside.)
        cells = bits.random_raw(-(-count // 4)).astype("<u8", copy=False).view("<u2")[:count]
        steps: Steps = self.table.lookup.take(cells, mode="clip")
        # The others take 46 further bits each, in order, and invert the distribution function exactly.
        undecided = np.flatnonzero(steps == UNDECIDED)
        finer = bits.random_raw(len(undecided)) >> np.uint64(64 - CELL_BITS)
        uniform = cells[undecided].astype(np.uint64) << np.uint64(CELL_BITS) | finer
        steps[undecided] = np.searchsorted(self.table.thresholds, uniform, side="right") - self.table.reach
        # m + K for every pixel, in 16-bit integers.
        steps = steps.reshape(self.block_size, *image.shape)
        steps += image
        return steps

    def correction(self, dimension: int) -> float:
        # The pixels are independent, so their total variations add up (a union bound).
        if dimension < 1:
            raise SoundnessError(f"An image has one pixel value or more (image.size), not {dimension}.")
        return math.nextafter(dimension * self.table.total_variation, math.inf)
