from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from smoothheads.certify.bounds import clopper_pearson_lower, max_radius
from smoothheads.noise.laws import l2_radius
from smoothheads.results import Results, metrics


def results(correct: Any, radius: Any) -> Results:
    """Images of class 0, correct or not."""
    count = len(correct)
    prediction = np.where(correct, 0, 1)
    return Results(
        "log", np.arange(count), np.zeros(count, int), prediction, np.asarray(radius), np.ones(count)
    )


def test_certified_accuracy_is_not_strict_and_counts_all_images() -> None:
    log = results([True, True, False, True, False], [0.5, 0.25, 2.0, 0.0, 0.0])
    accuracy = log.certified_accuracy([0, 0.25, 0.250001, 0.5, 0.75])
    np.testing.assert_allclose(accuracy, [0.6, 0.4, 0.2, 0.2, 0.0])
    assert log.acr == pytest.approx(0.15)  # wrong predictions count as 0


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5)), min_size=1, max_size=40))
def test_acr_is_the_area_under_the_curve(images: list[tuple[bool, float]]) -> None:
    log = results([c for c, _ in images], [r for _, r in images])
    steps = np.unique(np.concatenate([[0.0], log.radius]))  # CA is constant between neighbours
    heights = log.certified_accuracy(steps[1:])
    assert float(np.sum(np.diff(steps) * heights)) == pytest.approx(log.acr, abs=1e-12)


def test_classes_of_which_nothing_is_right_are_counted() -> None:
    label = np.array([0, 0, 1, 2, 2, 7])
    for right, certified in (([True, False, False, True, True, False], 2), ([False] * 6, 0)):
        log = Results("log", np.arange(6), label, np.where(right, label, -1), np.zeros(6), np.ones(6))
        assert (log.certified_classes, len(log.class_acr)) == (certified, 4)


def test_hardest_half_rounds_up_and_breaks_ties_by_order() -> None:
    assert metrics.hardest_half(np.array([0.9, 0.1, 0.5, 0.5, 0.2])).tolist() == [1, 4, 2]


@pytest.mark.parametrize("digits", [3, 6])
@pytest.mark.parametrize("n", [100, 1000, 10**5, 10**6])
@pytest.mark.parametrize("sigma", [0.12, 0.25, 0.5, 1.0])
def test_three_digits_tell_the_ceiling_from_the_next_radius(digits: int, n: int, sigma: float) -> None:
    top = max_radius(n, 0.001, sigma)
    second = l2_radius(clopper_pearson_lower(n - 1, n, 0.001), sigma)
    written = np.array([float(f"{value:.{digits}g}") for value in (top, second)])
    assert metrics.at_ceiling(written, top).tolist() == [True, False]


def test_default_radii_are_those_of_the_tables() -> None:
    assert metrics.default_radii(0.953) == (0.0, 0.25, 0.5, 0.75)
    assert metrics.default_radii(1.0) == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert len(metrics.default_radii(3.81)) == 10
    assert metrics.default_radii(0.0) == (0.0,)


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
    """Of 300 intervals at 95 % about 285 hold the truth; 1e-6 says at least 250 of them."""
    generator = np.random.default_rng(2)
    hits = 0
    for _ in range(300):
        values = generator.exponential(size=(200, 1))
        ((low, high),) = metrics.bootstrap(values, generator, resamples=200)
        hits += low <= 1.0 <= high
    assert stats.binom.ppf(1e-6, 300, 0.92) <= hits


def test_binomial_band_is_clopper_pearson() -> None:
    low, high = metrics.binomial_band(np.arange(31) / 30, 30)
    for hits in range(31):
        exact = stats.binomtest(hits, 30).proportion_ci(0.95, "exact")
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
