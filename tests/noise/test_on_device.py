"""What a device draws is what NumPy draws. The device of these tests is the CPU; the code is that of any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from smoothheads.errors import ConfigError, DataError, SoundnessError
from smoothheads.noise import GridNoise, GridTable
from smoothheads.noise.base import keyed_bits
from smoothheads.noise.grid import CELL_BITS, UNDECIDED
from smoothheads.noise.on_device import DeviceGridNoise, Draw
from smoothheads.types import Grid, Phase, Pixels

CPU = torch.device("cpu")


def pixels(seed: int, shape: tuple[int, ...], q: int) -> Pixels:
    return np.random.default_rng(seed).integers(0, q + 1, shape, dtype=np.uint8)


@pytest.mark.parametrize(
    ("q", "sigma", "block", "shape"),
    [
        (255, 0.5, 20, (3, 32, 32)),
        (255, 2.0, 3, (3, 5, 7)),  # not a multiple of the four cells in a word
        (255, 0.12, 7, (1, 3, 3)),
        (16, 0.5, 50, (1, 8, 8)),
        (16, 0.02, 9, (1, 3, 1)),
        (1, 0.5, 1, (1, 1, 1)),
    ],
)
def test_copies_are_numpys_bit_for_bit(q: int, sigma: float, block: int, shape: tuple[int, int, int]) -> None:
    noise = GridNoise(GridTable.build(sigma, Grid(q)), 2**64 - 7, block)
    on_device = DeviceGridNoise(noise, shape, CPU)
    for number, (index, phase) in enumerate(
        [(0, Phase.SELECTION), (2**63, Phase.ESTIMATION), (9, Phase.SCORES)]
    ):
        key: Any = pixels(number, shape, q), index, phase, 2**40 + number
        want, got = noise.noisy(*key), on_device.noisy(*key)
        assert got.dtype == torch.float32
        assert got.numpy().tobytes() == want.tobytes()
        assert got.shape == want.shape


def test_cells_that_need_refining_were_among_them() -> None:
    """The comparison above would be idle without them."""
    table = GridTable.build(0.5, Grid(255))
    share = float((table.lookup == UNDECIDED).mean())
    assert share * 20 * 3072 > 500


@pytest.fixture
def noise() -> GridNoise:
    return GridNoise(GridTable.build(0.5, Grid(16)), 0, 20)


def test_a_device_that_draws_something_else_is_refused(noise: GridNoise) -> None:
    def faulty(draw: Draw, examples: tuple[Tensor, Tensor]) -> Draw:
        def one_bit_off(key_6: Tensor, image: Tensor) -> Tensor:
            copies = draw(key_6, image)
            copies[7, 0, 3, 3] = torch.nextafter(copies[7, 0, 3, 3], torch.tensor(9.0))
            return copies

        return one_bit_off

    with pytest.raises(SoundnessError, match="the same noise on every device, got other samples on cpu"):
        DeviceGridNoise(noise, (1, 8, 8), CPU, record=faulty)


def test_too_few_words_give_no_numbers_rather_than_wrong_ones(
    noise: GridNoise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeviceGridNoise, "_compare", lambda self: None)
    key: Any = np.zeros((1, 8, 8), np.uint8), 0, Phase.ESTIMATION, 0
    steps = noise.table.lookup
    needed = next(
        spare
        for spare in range(1, 100)
        if not DeviceGridNoise(noise, (1, 8, 8), CPU, spare=spare).noisy(*key).isnan().any()
    )
    assert 2 < needed < 4 * 20 * 64 * float((steps == UNDECIDED).mean())
    short = DeviceGridNoise(noise, (1, 8, 8), CPU, spare=needed - 1).noisy(*key)
    assert short.isnan().all()
    exact = DeviceGridNoise(noise, (1, 8, 8), CPU, spare=needed).noisy(*key)
    np.testing.assert_array_equal(exact.numpy(), noise.noisy(*key))


def test_what_is_no_image_of_the_grid_or_no_key_is_refused(noise: GridNoise) -> None:
    on_device = DeviceGridNoise(noise, (1, 8, 8), CPU)
    image: Any = np.zeros((1, 8, 8), np.uint8)
    with pytest.raises(SoundnessError, match=r"0\.\.16"):
        on_device.noisy(image + np.uint8(17), 0, Phase.ESTIMATION, 0)
    with pytest.raises(SoundnessError, match="uint8"):
        on_device.noisy(image.astype(np.float32), 0, Phase.ESTIMATION, 0)
    with pytest.raises(DataError, match=r"shape \(1, 8, 8\), got \(1, 8, 1\)"):
        on_device.noisy(image[:, :, :1], 0, Phase.ESTIMATION, 0)
    with pytest.raises(ConfigError, match=r"2\^64"):
        on_device.noisy(image, 2**64, Phase.ESTIMATION, 0)


def test_a_draw_on_a_threshold_itself_is_numpys() -> None:
    """It happens once in 2^62 draws, so a threshold is moved onto one that is drawn."""
    table = GridTable.build(0.5, Grid(16))
    key: Any = np.zeros((1, 8, 8), np.uint8), 0, Phase.ESTIMATION, 0
    bits = keyed_bits(0, 0, Phase.ESTIMATION, 0)
    cells = bits.random_raw(20 * 64 // 4).view("<u2")
    cell = int(cells[table.lookup[cells] == UNDECIDED][0])
    uniform = np.uint64(cell << CELL_BITS | int(bits.random_raw()) >> 64 - CELL_BITS)
    thresholds = table.thresholds.copy()
    place = int(np.flatnonzero(thresholds >> np.uint64(CELL_BITS) == cell)[0])
    thresholds[place] = uniform
    noise = GridNoise(replace(table, thresholds=np.sort(thresholds)), 0, 20)
    want = noise.noisy(*key).tobytes()
    assert DeviceGridNoise(noise, (1, 8, 8), CPU).noisy(*key).numpy().tobytes() == want
