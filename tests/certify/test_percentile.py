"""Percentile smoothing: the published vector, monotone functions whose percentiles are known, and liars."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from smoothheads.certify.percentile import percentile_interval, percentile_ranks
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise import Noise, make_noise
from smoothheads.types import Grid

SIGMA, SHAPE = 0.5, (1, 4, 4)
IMAGE = np.random.default_rng(0).integers(0, 256, SHAPE, dtype=np.uint8)
NOISE = make_noise("grid", SIGMA, Grid(255), 3, 100)
GAUSSIAN = make_noise("gaussian", SIGMA, Grid(255), 3, 100)


def total(copies: Tensor) -> Tensor:
    """w . x with a unit vector w: under noise it is normal around w . x with deviation sigma."""
    return copies.flatten(1).double().sum(1) / 4


CENTRE = float(IMAGE.sum() / 255 / 4)


def test_vector() -> None:
    assert percentile_ranks(0.5, 0.25, sigma=0.5, n=10_000, alpha=0.001) == (2934, 7067)


def test_nothing_can_be_said_of_far_points() -> None:
    assert percentile_ranks(0.5, 5.0, sigma=0.5, n=100, alpha=0.001) == (0, 101)
    far = percentile_interval(total, IMAGE, NOISE, index=0, radius=5.0, n=100)
    assert (float(far.lower), float(far.upper)) == (-math.inf, math.inf)


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_ranks_hold_as_often_as_promised(quantile: float) -> None:
    """f(x) = x has percentile x + d + z_q at x + d: the bracket must hold both ends of [-r, r]."""
    rng, r = np.random.default_rng(2), 0.5
    low, high = percentile_ranks(quantile, r, sigma=1.0, n=500, alpha=0.05)
    outputs = np.sort(rng.standard_normal((3000, 500)), axis=1) - special.ndtri(quantile)
    upper = outputs[:, high - 1] if high <= 500 else np.full(3000, np.inf)
    errors = int(((outputs[:, low - 1] > -r) | (upper < r)).sum())
    assert stats.binom.sf(errors - 1, 3000, 0.05) > 1e-6
    assert outputs[:, low - 1].mean() > -0.8


def test_the_correction_widens_the_ranks() -> None:
    low, high = percentile_ranks(0.5, 0.25, sigma=0.5, n=10_000, alpha=0.001)
    wide = percentile_ranks(0.5, 0.25, sigma=0.5, n=10_000, alpha=0.001, correction=0.01)
    assert wide[0] == pytest.approx(low - 100, abs=3)
    assert wide[1] == pytest.approx(high + 100, abs=3)
    assert percentile_ranks(0.5, 0.25, sigma=0.5, n=10_000, alpha=0.001, correction=0.9) == (0, 10_001)


@pytest.mark.parametrize("monotone", [torch.exp, torch.tanh, lambda x: x], ids=["exp", "tanh", "linear"])
def test_monotone_functions(monotone: Callable[[Tensor], Tensor]) -> None:
    """g(w . x) has the median g(w . x + w . d) at x + d: exactly [g(w . x - r), g(w . x + r)] within r."""
    radius = 0.4
    found = percentile_interval(
        lambda copies: monotone(total(copies)), IMAGE, NOISE, index=0, radius=radius, n=20_000
    )
    low, middle, high = (
        float(monotone(torch.tensor(CENTRE + d, dtype=torch.float64))) for d in (-radius, 0, radius)
    )
    assert found.lower < low < middle < high < found.upper
    assert found.lower == pytest.approx(float(monotone(torch.tensor(CENTRE - radius - 0.03))), abs=0.3)
    assert found.estimate == pytest.approx(middle, rel=0.02)


@pytest.mark.parametrize("noise", [NOISE, GAUSSIAN], ids=["grid", "gaussian"])
def test_intervals_hold_as_often_as_promised(noise: Noise) -> None:
    """Noise, function and ranks together: both ends of the true range, at a false alarm of 1e-6."""
    runs, radius, alpha = 300, 0.2, 0.05
    errors = widths = 0.0
    for index in range(runs):
        found = percentile_interval(total, IMAGE, noise, index=index, radius=radius, n=200, alpha=alpha)
        errors += bool(found.lower > CENTRE - radius or found.upper < CENTRE + radius)
        widths += float(found.upper - found.lower) / runs
    assert stats.binom.sf(errors - 1, runs, alpha) > 1e-6
    assert widths < 3 * radius


def test_a_monotone_map_of_the_outputs_maps_the_interval() -> None:
    settings = {"index": 5, "radius": 0.2, "n": 3000, "quantile": 0.7}
    plain = percentile_interval(total, IMAGE, NOISE, **settings)  # type: ignore[arg-type]
    mapped = percentile_interval(lambda x: torch.exp(total(x)), IMAGE, NOISE, **settings)  # type: ignore[arg-type]
    assert (mapped.lower, mapped.upper) == pytest.approx((math.exp(plain.lower), math.exp(plain.upper)))


def test_several_outputs_share_alpha() -> None:
    def corners(copies: Tensor) -> Tensor:
        return torch.stack([total(copies), -total(copies)], 1).reshape(-1, 1, 2)

    both = percentile_interval(corners, IMAGE, NOISE, index=0, radius=0.2, n=2000, alpha=0.01)
    half = percentile_interval(total, IMAGE, NOISE, index=0, radius=0.2, n=2000, alpha=0.005)
    assert both.lower.shape == both.upper.shape == both.estimate.shape == (1, 2)
    assert both.lower[0].tolist() == pytest.approx([half.lower, -half.upper])


def test_only_the_key_and_the_image_matter() -> None:
    def interval(index: int, n: int = 1050) -> tuple[float, float]:
        found = percentile_interval(total, IMAGE, NOISE, index=index, radius=0.1, n=n)
        return float(found.lower), float(found.upper)

    assert interval(1) == interval(1)
    assert interval(1) != interval(2)


def test_outputs_of_exactly_n_copies_are_used() -> None:
    seen: list[int] = []

    def counting(copies: Tensor) -> Tensor:
        seen.append(len(copies))
        return total(copies)

    found = percentile_interval(counting, IMAGE, GAUSSIAN, index=0, radius=0.1, n=250)
    assert found.n == 250
    assert set(seen) == {100}  # whole blocks, as part of the key


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_outputs_that_are_not_finite_are_refused(bad: float) -> None:
    def sometimes(copies: Tensor) -> Tensor:
        outputs = total(copies)
        return torch.where(outputs > CENTRE + 2.5 * SIGMA, bad, outputs)

    with pytest.raises(
        SoundnessError, match="finite outputs, got NaN or infinity on noisy samples of image 7"
    ):
        percentile_interval(sometimes, IMAGE, NOISE, index=7, radius=0.1, n=2000)


def test_what_is_no_function_of_the_copy_is_refused() -> None:
    liars = {
        "different logits": lambda copies: total(copies) + torch.rand(len(copies)),
        "neighbours": lambda copies: total(copies) - total(copies).mean(),
        "output for each": lambda copies: total(copies).mean(),
    }
    for message, liar in liars.items():
        with pytest.raises(SoundnessError, match=message):
            percentile_interval(liar, IMAGE, NOISE, index=0, radius=0.1, n=200)


def test_wrong_settings_are_refused_before_sampling() -> None:
    def never(copies: Tensor) -> Tensor:
        raise AssertionError

    for wrong in (
        {"radius": -0.1},
        {"radius": 0.1, "quantile": 1.0},
        {"radius": 0.1, "alpha": 0.7},
        {"radius": 0.1, "n": 0},
    ):
        with pytest.raises(ConfigError):
            percentile_interval(never, IMAGE, NOISE, index=0, **wrong)  # type: ignore[arg-type]
    uniform = make_noise("uniform", SIGMA, Grid(255), 3, 100)
    with pytest.raises(ConfigError, match=r"Gaussian noise \(grid or gaussian\), got uniform"):
        percentile_interval(never, IMAGE, uniform, index=0, radius=0.1)
