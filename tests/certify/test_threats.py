"""Other threats: published vectors, and one-dimensional classifiers whose true answer is a distance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from smoothheads.certify.threats import (
    confidence_lower,
    l1_radius_laplace,
    l1_radius_uniform,
    linf_radius,
    linf_radius_uniform,
    mean_lower,
    percentile_ranks,
    top_k_radius,
)
from smoothheads.errors import ConfigError


@pytest.mark.parametrize(
    ("l2", "dimension", "levels"), [(0.434711, 3072, 2), (1.738843, 3072, 8), (1.521488, 150_528, 1)]
)
def test_linf_from_l2(l2: float, dimension: int, levels: int) -> None:
    assert linf_radius(l2, dimension) * 255 == pytest.approx(levels, rel=1e-5)


@pytest.mark.parametrize("distance", [0.1, 0.5, 0.9])
def test_l1_of_a_half_line(distance: float) -> None:
    """1[x > 0] at x = distance: the smoothed answer flips exactly there."""
    uniform, laplace = (1.5 + distance) / 3, 1 - 0.5 * math.exp(-distance / 1.5)
    for radius in (l1_radius_uniform(uniform, 1.5), l1_radius_laplace(laplace, 1.5)):
        assert radius == pytest.approx(distance, rel=1e-11)
        assert radius <= distance
    assert linf_radius_uniform(uniform, 1.5, 1) == pytest.approx(distance)


def test_l1_vectors_and_abstention() -> None:
    assert l1_radius_uniform(0.9, 1.0) == pytest.approx(0.8)
    assert l1_radius_laplace(0.9, 1.0) == pytest.approx(1.609438, abs=5e-7)
    for p in (0.0, 0.3, 0.5):
        assert l1_radius_uniform(p, 1.0) == l1_radius_laplace(p, 1.0) == linf_radius_uniform(p, 1.0, 9) == 0.0


def test_linf_of_uniform_noise_is_the_share_of_a_cube() -> None:
    """Cubes of side 2L, shifted by r in every coordinate, share (1 - r/2L)^d of their volume."""
    radius = linf_radius_uniform(0.9, 1.0, 20)
    assert (1 - radius / 2) ** 20 == pytest.approx(1.5 - 0.9)


def test_top_k_vectors() -> None:
    radii = [top_k_radius(0.4, [0.1, 0.3, 0.2], k, 1.0) for k in (1, 2, 3)]
    assert radii == pytest.approx([0.1355, 0.2941, 0.5141], abs=5e-5)
    assert top_k_radius(0.4, [0.3, 0.2, 0.1], 2, 0.5) == pytest.approx(radii[1] / 2)


def test_top_k_of_equal_rivals() -> None:
    """Three rivals of 0.2: the class falls out of the top three only when all three pass it, at
    Phi(z - R) = Phi(-z + R) / 3 with z = Phi^-1(0.4), where Phi(R - z) = 3/4."""
    radius, truth = (
        top_k_radius(0.4, [0.2, 0.2, 0.2], 3, 1.0),
        float(special.ndtri(0.75) - special.ndtri(0.6)),
    )
    assert radius == pytest.approx(truth, rel=1e-10)
    assert radius <= truth
    assert radius > top_k_radius(0.4, [0.2, 0.2, 0.2], 1, 1.0)
    assert top_k_radius(0.1, [0.5, 0.4], 1, 1.0) == 0.0
    assert top_k_radius(0.0, [0.5, 0.4], 2, 1.0) == 0.0


def test_confidence_of_a_half_line() -> None:
    """The score 1[x > 0] at x = sigma: within r its mean is at least Phi(1 - r / sigma), and no more."""
    scores = (np.random.default_rng(0).standard_normal(200_000) + 1 > 0).astype(np.float64)
    for ratio in (0.0, 0.5, 1.5):
        bound, truth = confidence_lower(scores, ratio * 0.5, 0.5, 0.001), float(special.ndtr(1 - ratio))
        assert truth - 0.01 < bound < truth
        assert mean_lower(float(special.ndtr(1.0)), ratio * 0.5, 0.5) == pytest.approx(truth)
    assert mean_lower(0.0, 1.0, 1.0) == 0.0


def test_confidence_holds_as_often_as_promised() -> None:
    rng = np.random.default_rng(1)
    truth = float(special.ndtr(1 / 2**0.5))  # the mean of Phi(x + e) at x = 1 for unit noise
    errors = sum(
        confidence_lower(special.ndtr(1 + rng.standard_normal(300)), 0.0, 1.0, 0.05) > truth
        for _ in range(1000)
    )
    assert stats.binom.sf(errors - 1, 1000, 0.05) > 1e-6


def test_percentile_vector() -> None:
    assert percentile_ranks(0.5, 0.25, 0.5, 10_000, 0.001) == (2934, 7067)
    assert percentile_ranks(0.5, 5.0, 0.5, 100, 0.001) == (
        0,
        101,
    )  # nothing can be said: minus and plus infinity


def test_percentiles_of_the_identity() -> None:
    """f(x) = x has median x + d at x + d: the bracket must hold [-r, r] except with probability alpha."""
    rng, r = np.random.default_rng(2), 0.5
    low, high = percentile_ranks(0.5, r, 1.0, 500, 0.05)
    outputs = np.sort(rng.standard_normal((3000, 500)), axis=1)
    errors = int(((outputs[:, low - 1] > -r) | (outputs[:, high - 1] < r)).sum())
    assert stats.binom.sf(errors - 1, 3000, 0.05) > 1e-6
    assert outputs[:, low - 1].mean() > -0.75


def test_nonsense_is_refused() -> None:
    for call in (
        lambda: l1_radius_uniform(1.0, 1.0),
        lambda: l1_radius_laplace(0.9, 0.0),
        lambda: linf_radius(1.0, 0),
        lambda: top_k_radius(0.4, [0.3], 2, 1.0),
        lambda: confidence_lower(np.array([0.5, np.nan]), 0.1, 1.0, 0.01),
        lambda: confidence_lower(np.array([1.5]), 0.1, 1.0, 0.01),
        lambda: percentile_ranks(1.0, 0.1, 1.0, 10, 0.01),
        lambda: percentile_ranks(0.5, 0.1, 1.0, 10, 0.7),
    ):
        with pytest.raises(ConfigError):
            call()
