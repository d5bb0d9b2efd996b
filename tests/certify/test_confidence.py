"""Certified confidence: scores whose mean is known in closed form everywhere."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import special, stats

from smoothheads.certify.confidence import (
    ConfidenceMethod,
    confidence_lower,
    empirical_bernstein,
    mean_lower,
)
from smoothheads.errors import ConfigError, SoundnessError

FALSE_ALARM = 1e-6
METHODS: tuple[ConfidenceMethod, ...] = ("distribution", "mean")


def test_soft_margin_vector() -> None:
    """Mean scores .8 and .1 meet at sigma / 2 (Phi^-1(.8) - Phi^-1(.1)) = 1.0616."""
    radius = 1.0616
    assert mean_lower(0.8, radius, 1.0) == pytest.approx(1 - mean_lower(0.9, radius, 1.0), abs=2e-5)
    assert mean_lower(0.8, radius + 1e-3, 1.0) < 1 - mean_lower(0.9, radius + 1e-3, 1.0)
    assert mean_lower(0.8, radius - 1e-3, 1.0) > 1 - mean_lower(0.9, radius - 1e-3, 1.0)


def test_confidence_of_a_half_line() -> None:
    """The score 1[x > 0] at x = sigma: within r its mean is at least Phi(1 - r / sigma), and no more."""
    scores = (np.random.default_rng(0).standard_normal(200_000) + 1 > 0).astype(np.float64)
    for ratio in (0.0, 0.5, 1.5):
        truth = float(special.ndtr(1 - ratio))
        assert mean_lower(float(special.ndtr(1.0)), ratio * 0.5, 0.5) == pytest.approx(truth)
        for method in METHODS:
            bound = confidence_lower(scores, ratio * 0.5, sigma=0.5, alpha=0.001, method=method)
            assert truth - 0.01 < bound < truth
    assert mean_lower(0.0, 1.0, 1.0) == 0.0


def test_the_bound_by_hand() -> None:
    """Two levels: all copies have at least .4, half of them .9."""
    scores = np.array([0.4, 0.9] * 5000)
    slack = float(np.sqrt(np.log(1000) / 20_000))
    shift = 0.3 / 0.5
    parts = (
        0.4 * special.ndtr(special.ndtri(1 - slack) - shift),
        0.5 * special.ndtr(special.ndtri(0.5 - slack) - shift),
    )
    assert confidence_lower(scores, 0.3, sigma=0.5, alpha=0.001) == pytest.approx(sum(parts), rel=1e-3)
    corrected = confidence_lower(scores, 0.3, sigma=0.5, alpha=0.001, correction=0.01)
    assert corrected < sum(parts)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ratio", [0.0, 0.7])
def test_it_holds_as_often_as_promised(method: ConfidenceMethod, ratio: float) -> None:
    """The score Phi(x) at x = 1 under unit noise: its mean at x - r is Phi((1 - r) / sqrt 2)."""
    rng = np.random.default_rng(1)
    truth = float(special.ndtr((1 - ratio) / 2**0.5))
    bounds = [
        confidence_lower(
            special.ndtr(1 + rng.standard_normal(300)), ratio, sigma=1.0, alpha=0.05, method=method
        )
        for _ in range(1000)
    ]
    errors = int(np.sum(np.array(bounds) > truth))
    assert stats.binom.sf(errors - 1, 1000, 0.05) > FALSE_ALARM
    assert np.mean(bounds) > 0.6 * truth


@pytest.mark.parametrize(("score", "radius", "better"), [(0.98, 0.05, "mean"), (0.5, 0.5, "distribution")])
def test_either_can_be_better(score: float, radius: float, better: ConfidenceMethod) -> None:
    """Of a constant score the distribution knows that noise cannot move it; the mean has less to estimate."""
    scores = np.full(2000, score)
    found = {m: confidence_lower(scores, radius, sigma=0.5, alpha=0.001, method=m) for m in METHODS}
    assert max(METHODS, key=lambda method: found[method]) == better
    assert max(found.values()) < score


@pytest.mark.parametrize("shape", [0.5, 5.0])
def test_the_mean_is_bounded_as_often_as_promised(shape: float) -> None:
    rng = np.random.default_rng(3)
    errors = sum(
        empirical_bernstein(rng.beta(shape, 1, 100), 0.05) > shape / (shape + 1) for _ in range(2000)
    )
    assert stats.binom.sf(errors - 1, 2000, 0.05) > FALSE_ALARM
    assert empirical_bernstein(np.array([1.0]), 0.05) == 0.0
    assert empirical_bernstein(np.ones(10_000), 0.05) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_bounds_fall_with_the_radius_and_stay_in_the_unit_interval(method: ConfidenceMethod) -> None:
    scores = np.random.default_rng(4).random(500)
    radii = np.linspace(0, 30, 40)
    bounds = [confidence_lower(scores, r, sigma=1.0, alpha=0.01, method=method) for r in radii]
    assert all(a >= b for a, b in pairwise(bounds))
    assert bounds[0] < scores.mean()
    assert bounds[-1] == pytest.approx(0, abs=1e-9)
    assert min(bounds) >= 0


@pytest.mark.parametrize("scores", [[0.5, np.nan], [1.5], [-0.1], [], [[0.5]]])
def test_what_is_no_score_is_refused(scores: list[float]) -> None:
    with pytest.raises(SoundnessError, match=r"scores \[n\] in \[0, 1\]"):
        confidence_lower(np.array(scores, dtype=np.float64), 0.1, sigma=1.0, alpha=0.01)


def test_wrong_settings_are_refused() -> None:
    for radius, sigma, alpha in ((-1.0, 1.0, 0.01), (0.1, 0.0, 0.01), (0.1, 1.0, 0.6), (np.nan, 1.0, 0.01)):
        with pytest.raises(ConfigError):
            confidence_lower(np.array([0.5]), radius, sigma=sigma, alpha=alpha)
