"""Grid noise drawn on a device: the samples that NumPy draws for the same key, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.device import sent
from smoothheads.errors import DataError, SoundnessError
from smoothheads.lazy import torch
from smoothheads.noise.base import check_image, philox_key
from smoothheads.noise.grid import CELL_BITS, UNDECIDED, GridNoise, in_pixels
from smoothheads.noise.philox import DevicePhilox
from smoothheads.types import Phase, Pixels

if TYPE_CHECKING:
    from torch import Tensor

Draw = Callable[["Tensor", "Tensor"], "Tensor"]
Record = Callable[[Draw, tuple["Tensor", "Tensor"]], Draw]


class DeviceGridNoise:
    """`GridNoise.noisy` in integer operations of fixed shape, which nobody waits for.

    Not even the division by q is left to the device: quotients are looked up. One block is compared with
    NumPy's at the start, and a SoundnessError is raised if a bit differs. `record` may replace the drawing
    by something that does the same faster.
    """

    def __init__(
        self,
        noise: GridNoise,
        shape: tuple[int, int, int],
        device: torch.device,
        *,
        record: Record | None = None,
        spare: int | None = None,
    ) -> None:
        table = noise.table
        self.noise, self.shape, self.device = noise, shape, device
        self._count = noise.block_size * math.prod(shape)
        self._first = -(-self._count // 4)  # words that hold the cells; those that refine follow
        self._spare = _spare_words(self._count, float((table.lookup == UNDECIDED).mean()), spare)
        self._philox = DevicePhilox(self._first + self._spare, device)
        self._shifts_4 = torch.arange(0, 64, 16, device=device)
        self._lookup = _placed(table.lookup.astype(np.int64), device)
        self._thresholds = _placed(table.thresholds.astype(np.int64), device)  # below 2^62: the order stays
        values = np.arange(-table.reach, table.grid.max_value + table.reach + 1, dtype=np.int16)
        self._quotients = _placed(in_pixels(values, table.grid), device)
        self._draw: Draw = self._drawn
        if record is not None:
            examples = self._key(0, Phase.PILOT, 0), _placed(_ramp(noise, shape), device)
            self._draw = record(self._drawn, examples)
        self._compare()

    def noisy(self, image: Pixels, index: int, phase: Phase, block: int) -> Tensor:
        """[block_size, channels, height, width] on the device, as `Noise.noisy` has it."""
        check_image(image, self.noise.table.grid)
        if image.shape != self.shape:
            raise DataError(f"an image of shape {self.shape}", f"{image.shape}", "resize or crop it")
        return self._draw(self._key(index, phase, block), _placed(image, self.device))

    def _drawn(self, key_6: Tensor, image_CHW: Tensor) -> Tensor:
        words = self._philox(key_6[:2], key_6[2:])
        cells = ((words[: self._first, None] >> self._shifts_4) & 0xFFFF).flatten()[: self._count]
        steps = self._lookup[cells]
        undecided = steps == UNDECIDED
        rank = undecided.cumsum(0) - 1  # the i-th undecided cell takes the i-th word after the cells
        finer = words[self._first + rank.clamp(0, self._spare - 1)] >> (64 - CELL_BITS)
        uniform = (cells << CELL_BITS) | (finer & (2**CELL_BITS - 1))
        place = torch.searchsorted(self._thresholds, uniform, right=True)
        reach = self.noise.table.reach
        place = torch.where(undecided, place, steps + reach).reshape(self.noise.block_size, *self.shape)
        # Too few words for all: no number rather than a wrong one, and no engine counts it as a vote.
        return self._quotients[place + image_CHW].masked_fill(rank[-1] >= self._spare, torch.nan)

    def _key(self, index: int, phase: Phase, block: int) -> Tensor:
        return _placed(philox_key(self.noise.seed, index, phase, block).view(np.int64), self.device)

    def _compare(self) -> None:
        image = _ramp(self.noise, self.shape)
        got = self.noisy(image, 1, Phase.PILOT, 0).cpu().numpy()
        if not np.array_equal(got, self.noise.noisy(image, 1, Phase.PILOT, 0)):
            raise SoundnessError(
                "the same noise on every device", f"other samples on {self.device}", "certify on the cpu"
            )


def _spare_words(count: int, share: float, wanted: int | None) -> int:
    """Enough for the undecided among `count` cells, but for a probability below 1e-30 (Bernstein)."""
    if wanted is not None:
        return wanted
    mean = count * share
    return min(count, math.ceil(mean + 12 * math.sqrt(mean) + 144))


def _ramp(noise: GridNoise, shape: tuple[int, int, int]) -> Pixels:
    return (np.arange(math.prod(shape)) % (noise.table.grid.max_value + 1)).astype(np.uint8).reshape(shape)


def _placed(array: NDArray[Any], device: torch.device) -> Tensor:
    return sent(torch.tensor(array), device)
