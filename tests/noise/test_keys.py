"""The key contract: noise is a pure function of (seed, index, phase, block), whatever the numpy release."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise import NOISES, Noise
from smoothheads.noise.base import keyed_bits
from smoothheads.types import Grid, Phase, Pixels

NAMES = ["gaussian", "grid", "uniform", "laplace"]


@pytest.fixture(params=NAMES)
def noise(request: pytest.FixtureRequest) -> Noise:
    return NOISES.get(request.param)().keyed(0.25, Grid(255), 7, 10)


@pytest.fixture
def image() -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)


def test_stream_of_a_key_is_the_published_vector() -> None:
    bits = keyed_bits(7, 20, Phase.ESTIMATION, 3)
    assert bits.random_raw(4).tolist() == [
        9431809411864981488,
        6303944394427810682,
        564067925375673155,
        10487088362517221698,
    ]
    normal = np.random.Generator(keyed_bits(7, 20, Phase.ESTIMATION, 3)).standard_normal(4, dtype=np.float32)
    np.testing.assert_allclose(normal, [-0.50100112, 0.96448541, -1.36452949, 0.14951645], rtol=1e-6)


def test_same_key_same_copies(noise: Noise, image: Pixels) -> None:
    first = noise.noisy(image, 20, Phase.ESTIMATION, 3)
    noise.noisy(image, 21, Phase.ESTIMATION, 3)
    np.testing.assert_array_equal(noise.noisy(image, 20, Phase.ESTIMATION, 3), first)
    assert first.shape == (10, 3, 8, 8)
    assert first.dtype == np.float32
    assert first.flags.c_contiguous


def test_every_part_of_the_key_matters(image: Pixels) -> None:
    for name in NAMES:
        blocks = [
            NOISES.get(name)().keyed(0.25, Grid(255), seed, 10).noisy(image, index, phase, block)
            for seed, index, phase, block in [
                (7, 20, Phase.ESTIMATION, 3),
                (8, 20, Phase.ESTIMATION, 3),
                (7, 21, Phase.ESTIMATION, 3),
                (7, 20, Phase.SELECTION, 3),
                (7, 20, Phase.PILOT, 3),
                (7, 20, Phase.ESTIMATION, 4),
                (20, 7, Phase.ESTIMATION, 3),
            ]
        ]
        assert len({block.tobytes() for block in blocks}) == len(blocks)


def test_large_indices_are_whole(noise: Noise, image: Pixels) -> None:
    """A float on the way would merge neighbours above 2^53."""
    high = 2**63
    one, other = (noise.noisy(image, i, Phase.ESTIMATION, 0) for i in (high, high - 1))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(("seed", "index", "block"), [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (2**64, 0, 0)])
def test_keys_out_of_range_are_refused(seed: int, index: int, block: int) -> None:
    with pytest.raises(ConfigError, match=r"2\^64"):
        keyed_bits(seed, index, Phase.SELECTION, block)


def test_what_is_no_grid_image_is_refused(noise: Noise, image: Pixels) -> None:
    """A float image, or one on another scale, would be certified at a radius in the wrong unit."""
    wrong: Any
    for wrong in (image.astype(np.float32) / 255, image[0], image[:0]):
        with pytest.raises(SoundnessError, match="uint8"):
            noise.noisy(wrong, 0, Phase.ESTIMATION, 0)
    with pytest.raises(SoundnessError, match=r"0\.\.16"):
        NOISES.get(noise.law.name)().keyed(0.25, Grid(16), 0, 4).noisy(image, 0, Phase.ESTIMATION, 0)


@pytest.mark.parametrize(
    ("name", "sigma", "q", "block_size"),
    [
        ("gauss", 0.25, 255, 10),
        ("gaussian", 0.0, 255, 10),
        ("gaussian", 0.25, 0, 10),
        ("gaussian", 0.25, 255, 0),
        ("uniform", 0.0, 255, 10),
        ("laplace", float("nan"), 255, 10),
    ],
)
def test_wrong_settings_are_refused(name: str, sigma: float, q: int, block_size: int) -> None:
    with pytest.raises(ConfigError):
        NOISES.get(name)().keyed(sigma, Grid(q), 0, block_size)
