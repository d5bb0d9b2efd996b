from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from smoothheads.errors import ConfigError
from smoothheads.results import metrics


def test_standard_error_of_a_share() -> None:
    estimate = metrics.mean(np.arange(500) < 300)
    assert estimate.value == pytest.approx(0.6)
    assert estimate.standard_error == pytest.approx(math.sqrt(0.6 * 0.4 / 499))
    assert math.isnan(metrics.mean(np.array([1.0])).standard_error)


def test_bootstrap_agrees_with_normal_theory_and_with_itself() -> None:
    values = np.random.default_rng(0).normal(size=400)
    columns = np.column_stack([values, values + 1])
    (low, high), shifted = metrics.bootstrap(columns, np.random.default_rng(1))
    again, _ = metrics.bootstrap(columns, np.random.default_rng(1))
    estimate = metrics.mean(values)
    assert (low, high) == again
    assert shifted == pytest.approx((low + 1, high + 1))
    assert low == pytest.approx(estimate.value - 1.96 * estimate.standard_error, abs=0.012)
    assert high == pytest.approx(estimate.value + 1.96 * estimate.standard_error, abs=0.012)


def test_bootstrap_covers() -> None:
    """Of 300 intervals at 90 % about 270 hold the truth; 1e-6 says at least 242 of them."""
    generator = np.random.default_rng(2)
    hits = 0
    for _ in range(300):
        values = generator.exponential(size=(200, 1))
        ((low, high),) = metrics.bootstrap(values, generator, resamples=200, level=0.9)
        hits += low <= 1.0 <= high
    assert stats.binom.ppf(1e-6, 300, 0.88) <= hits <= stats.binom.isf(1e-6, 300, 0.90)


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_binomial_band_is_clopper_pearson(level: float) -> None:
    low, high = metrics.binomial_band(np.arange(31) / 30, 30, level=level)
    for hits in range(31):
        exact = stats.binomtest(hits, 30).proportion_ci(level, "exact")
        assert (low[hits], high[hits]) == pytest.approx((exact.low, exact.high))
    assert (low[0], high[30]) == (0, 1)


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 3), (8, 2), (5, 5), (40, 61)])
def test_paired_test_is_the_exact_binomial_test(only_first: int, only_second: int) -> None:
    first = np.arange(only_first + only_second) < only_first
    expected = stats.binomtest(only_first, only_first + only_second, 0.5).pvalue
    assert metrics.paired_test(first, ~first) == pytest.approx(expected)


def test_paired_test_counts_only_where_they_differ() -> None:
    first = np.array([True] * 8 + [False] * 2 + [True] * 90)
    second = np.array([False] * 8 + [True] * 2 + [True] * 90)
    assert metrics.paired_test(first, second) == pytest.approx(2 * stats.binom.cdf(2, 10, 0.5))
    assert metrics.paired_test(first, second) == metrics.paired_test(second, first)
    assert metrics.paired_test(first, first) == 1.0


def test_dataset_level_vectors() -> None:
    assert metrics.false_certificates(500, 0.001) == 4
    assert metrics.false_certificates(10_000, 0.001) == 21


@pytest.mark.parametrize("images", [100, 500, 10_000])
@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.05])
def test_the_exact_bound_holds_and_is_the_smallest(images: int, alpha: float) -> None:
    wrong = metrics.false_certificates(images, alpha)
    assert wrong == stats.binom.ppf(0.999, images, alpha)
    assert stats.binom.sf(wrong, images, alpha) <= 0.001 < stats.binom.sf(wrong - 1, images, alpha)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigError, match="images 0"):
        metrics.false_certificates(0, 0.001)
    with pytest.raises(ConfigError, match="alpha 0"):
        metrics.false_certificates(10, 0)
