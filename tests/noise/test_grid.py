"""Exact grid noise: its law, its shift property, its price, and the lie that the float path certifies."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from smoothheads.certify.algorithm import CertifyParams
from smoothheads.certify.budgets import FixedBudget
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise import NOISES, GridNoise, GridTable, Noise
from smoothheads.noise.base import keyed_bits
from smoothheads.types import Counts, Grid, Phase, Pixels

SETTINGS = [(255, 0.5), (255, 0.12), (16, 0.5), (16, 0.02), (1, 0.5), (255, 2.0)]


@cache
def table_of(q: int, sigma: float) -> GridTable:
    return GridTable.build(sigma, Grid(q))


@pytest.fixture
def cifar_table() -> GridTable:
    return table_of(255, 0.5)


def pixels(seed: int, shape: tuple[int, ...] = (3, 32, 32), q: int = 255) -> Pixels:
    return np.random.default_rng(seed).integers(0, q + 1, shape, dtype=np.uint8)


def pmf(table: GridTable) -> NDArray[np.float64]:
    edges = (np.arange(-table.reach, table.reach) + 0.5) / (table.grid.max_value * table.sigma)
    # Differences of the tail that is small, so that nothing cancels.
    lower, upper = special.ndtr(edges), special.ndtr(-edges)
    steps = np.where(edges[1:] <= 0, np.diff(lower), -np.diff(upper))
    return np.concatenate([[lower[0]], steps, [upper[-1]]])


@pytest.mark.parametrize(("q", "sigma"), SETTINGS[:5])
def test_thresholds_are_those_of_the_normal_law(q: int, sigma: float) -> None:
    """Second derivation: the distribution function of another library at another precision."""
    table = table_of(q, sigma)
    with mpmath.workdps(40):
        for j in np.unique(np.linspace(-table.reach, table.reach - 1, 25).round().astype(int)):
            exact = mpmath.ncdf((mpmath.mpf(int(j)) + mpmath.mpf("0.5")) / (q * mpmath.mpf(sigma))) * 2**62
            assert int(table.thresholds[j + table.reach]) == int(mpmath.floor(exact))


@pytest.mark.parametrize(("q", "sigma"), SETTINGS)
def test_table_is_whole(q: int, sigma: float) -> None:
    table = table_of(q, sigma)
    assert np.all(np.diff(table.thresholds.astype(np.int64)) >= 0)
    assert table.total_variation < 3e-15
    law = np.diff(np.concatenate([[0.0], table.thresholds / 2.0**62, [1.0]]))
    np.testing.assert_allclose(law, pmf(table), atol=2e-16)


def test_price_of_the_table(cifar_table: GridTable) -> None:
    noise = GridNoise(cifar_table, 0, 1)
    assert len(cifar_table.thresholds) + 1 == 2375
    assert cifar_table.total_variation == pytest.approx(8.1e-17, rel=0.01)
    assert noise.correction(3072) == pytest.approx(2.5e-13, rel=0.01)
    assert noise.correction(150_528) == pytest.approx(1.2e-11, rel=0.02)
    assert noise.sigma == 0.5
    with pytest.raises(SoundnessError):
        noise.correction(0)
    assert noise.correction(3072) >= 3072 * cifar_table.total_variation


def test_lookup_and_refinement_are_the_62_bit_inversion() -> None:
    """The fast path gives, draw by draw, what plain inversion gives on the same bits."""
    table = table_of(255, 1.0)
    drawn = GridNoise(table, 5, 8).integers(np.zeros((3, 16, 16), np.uint8), 9, Phase.PILOT, 2).ravel()
    bits = keyed_bits(5, 9, Phase.PILOT, 2)
    cells = bits.random_raw(drawn.size // 4).view("<u2").astype(np.uint64)
    undecided = table.lookup[cells.astype(np.intp)] == np.iinfo(np.int16).min
    uniform = cells << np.uint64(46)
    uniform[undecided] |= bits.random_raw(int(undecided.sum())) >> np.uint64(18)
    assert undecided.sum() > 50
    np.testing.assert_array_equal(drawn, np.searchsorted(table.thresholds, uniform, "right") - table.reach)


@pytest.mark.parametrize(("q", "sigma"), SETTINGS)
def test_law_of_the_draws(q: int, sigma: float) -> None:
    """Chi-square against the exact probabilities, mean and variance; each at a false-alarm rate of 1e-6."""
    noise = GridNoise(table_of(q, sigma), 11, 300)
    draws = noise.integers(np.zeros((3, 32, 32), np.uint8), 0, Phase.ESTIMATION, 0).ravel()
    reach, law = noise.table.reach, pmf(noise.table)
    expected, seen = law * draws.size, np.bincount(draws.astype(np.int64) + reach, minlength=2 * reach + 1)
    group = np.minimum(np.cumsum(expected) // 20, draws.size // 20 - 1).astype(
        int
    )  # at least about 20 a group
    wanted, found = np.bincount(group, expected), np.bincount(group, seen)
    keep = wanted > 0
    statistic = float(((found - wanted)[keep] ** 2 / wanted[keep]).sum())
    assert stats.chi2.sf(statistic, keep.sum() - 1) > 1e-6
    variance = float((law * np.arange(-reach, reach + 1) ** 2).sum())
    if q * sigma > 1:
        assert variance == pytest.approx((q * sigma) ** 2 + 1 / 12, rel=1e-9)
    assert abs(draws.mean()) < 4.9 * (variance / draws.size) ** 0.5
    assert draws.var() == pytest.approx(variance, rel=4.9 * (3 / draws.size) ** 0.5)


def test_noise_is_the_same_integer_whatever_the_image(cifar_table: GridTable) -> None:
    """Shift property: the noisy image is m + K with a K that has never seen m."""
    noise = GridNoise(cifar_table, 0, 20)
    image, other = pixels(1), pixels(2)
    steps = [noise.integers(m, 3, Phase.ESTIMATION, 0) - m.astype(np.int32) for m in (image, other)]
    np.testing.assert_array_equal(steps[0], steps[1])


@pytest.mark.parametrize(("q", "sigma"), [(255, 0.5), (16, 0.25), (255, 2.0)])
def test_nothing_is_float_before_the_whole_noisy_image(q: int, sigma: float) -> None:
    noise = GridNoise(table_of(q, sigma), 0, 20)
    image = pixels(1, q=q)
    steps = noise.integers(image, 3, Phase.ESTIMATION, 0)
    assert np.issubdtype(steps.dtype, np.signedinteger)
    assert np.issubdtype(noise.table.lookup.dtype, np.signedinteger)
    assert noise.table.thresholds.dtype == np.uint64
    # The float copies are a function of the integers alone: one float for each whole value.
    np.testing.assert_array_equal(
        noise.noisy(image, 3, Phase.ESTIMATION, 0), (steps.astype(np.float32) / np.float32(q))
    )


def test_the_table_is_the_same_everywhere(cifar_table: GridTable) -> None:
    """A golden value: another platform or mpmath that gives another table must not go unnoticed."""
    head = f"{cifar_table.sigma.hex()} {cifar_table.grid.max_value} ".encode()
    content = head + cifar_table.thresholds.astype("<u8").tobytes()
    assert hashlib.sha256(content).hexdigest().startswith("4f402e5bc1f7")


def test_noise_of_a_key_is_the_same_everywhere(cifar_table: GridTable) -> None:
    """Golden integers: ledgers of other machines and releases can be recomputed only while these hold."""
    steps = GridNoise(cifar_table, 7, 10).integers(np.zeros((3, 8, 8), np.uint8), 20, Phase.ESTIMATION, 3)
    assert steps.ravel()[:8].tolist() == [195, -114, 6, 4, -81, 173, -157, -52]
    assert hashlib.sha256(steps.astype("<i2").tobytes()).hexdigest().startswith("9dcc033373f437f7")


def test_noise_that_would_overflow_is_refused() -> None:
    with pytest.raises(ConfigError, match="16 bits"):
        GridTable.build(13.8, Grid(255))


def test_scope_names_the_grid(cifar_table: GridTable) -> None:
    assert "8-bit images" in GridNoise(cifar_table, 0, 1).scope
    assert "integers from 0 to 16" in GridNoise(table_of(16, 0.5), 0, 1).scope


def unit(image: Pixels) -> NDArray[np.float32]:
    return np.divide(image, 255, dtype=np.float32)


@dataclass(frozen=True)
class Recogniser:
    """Votes of a crafted classifier: 1 iff every noisy pixel looks like fl(x + noise) for the x it knows."""

    noise: Noise
    known: Pixels
    image: Pixels

    def __call__(self, phase: Phase, count: int) -> Counts:
        votes, known = np.zeros(2, np.int64), unit(self.known)
        for block in range(count // self.noise.block_size):
            copies = self.noise.noisy(self.image, 0, phase, block)
            traces = ((copies - known) + known) == copies
            votes += np.bincount(traces.all(axis=(1, 2, 3)), minlength=2)
        return votes


def one_level_away(image: Pixels) -> Pixels:
    return (image.astype(np.int64) + np.where(image < 255, 1, -1)).astype(np.uint8)


@pytest.mark.parametrize("name", ["gaussian", "grid"])
def test_float_noise_certifies_a_lie_and_grid_noise_does_not(name: str, cifar_table: GridTable) -> None:
    """At x the recogniser says 1, one grey level away it says 0; float noise certifies 1 far beyond that."""
    image = pixels(4)
    neighbour = one_level_away(image)
    distance = 3072**0.5 / 255
    noise: Noise = (
        NOISES.get("gaussian")().keyed(0.5, Grid(255), 1, 50)
        if name == "gaussian"
        else GridNoise(cifar_table, 1, 50)
    )
    budget, terms = FixedBudget(n0=50, n=500), CertifyParams(sigma=0.5, correction=noise.correction(3072))
    here, there = (budget.certify(Recogniser(noise, image, x), terms) for x in (image, neighbour))
    assert min(here.radius, there.radius) > 4 * distance  # both points are certified, each over the other
    assert (here.prediction == there.prediction) == (name == "grid")


def test_trace_of_the_image_is_gone(cifar_table: GridTable) -> None:
    """The share of pixels that look like fl(x + noise): 1 against less at the neighbour for float noise, and
    the same on both sides for grid noise (two-sample test at 1e-6)."""
    image = pixels(4)
    neighbour, known = one_level_away(image), unit(image)

    def shares(noise: Noise, x: Pixels, index: int) -> NDArray[np.float64]:
        copies = noise.noisy(x, index, Phase.ESTIMATION, 0)
        share: NDArray[np.float64] = (((copies - known) + known) == copies).mean(axis=(1, 2, 3))
        return share

    float_noise, grid_noise = (
        NOISES.get("gaussian")().keyed(0.5, Grid(255), 1, 200),
        GridNoise(cifar_table, 1, 200),
    )
    assert shares(float_noise, image, 0).min() == 1.0
    assert shares(float_noise, neighbour, 1).max() < 0.992
    here, there = shares(grid_noise, image, 0), shares(grid_noise, neighbour, 1)
    assert here.mean() == pytest.approx(0.777, abs=0.01)
    assert stats.ks_2samp(here, there).pvalue > 1e-6
