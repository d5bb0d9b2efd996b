from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.radius import max_radius
from smoothheads.noise.l2 import l2_radius
from smoothheads.results import metrics

CORRECT = np.array([True, True, False, True, False])
RADIUS = np.array([0.5, 0.25, 2.0, 0.0, 0.0])


def test_certified_accuracy_is_not_strict_and_counts_all_images() -> None:
    accuracy = metrics.certified_accuracy(CORRECT, RADIUS, [0, 0.25, 0.250001, 0.5, 0.75])
    np.testing.assert_allclose(accuracy, [0.6, 0.4, 0.2, 0.2, 0.0])


def test_average_certified_radius_counts_wrong_answers_as_zero() -> None:
    assert metrics.average_certified_radius(CORRECT, RADIUS) == pytest.approx(0.15)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5)), min_size=1, max_size=40))
def test_acr_is_the_area_under_the_curve(images: list[tuple[bool, float]]) -> None:
    correct = np.array([c for c, _ in images])
    radius = np.array([r for _, r in images])
    steps = np.unique(np.concatenate([[0.0], radius]))  # CA is constant between neighbours
    heights = metrics.certified_accuracy(correct, radius, list(steps[1:]))
    area = float(np.sum(np.diff(steps) * heights))
    assert area == pytest.approx(metrics.average_certified_radius(correct, radius), abs=1e-12)


def test_classes_of_which_nothing_is_right_are_counted() -> None:
    label = np.array([0, 0, 1, 2, 2, 7])
    assert metrics.classes_certified(label, np.array([True, False, False, True, True, False])) == (2, 4)
    assert metrics.classes_certified(label, np.zeros(6, bool)) == (0, 4)


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
    assert metrics.default_radii(0.3, step=0.1) == (0.0, 0.1, 0.2, 0.3)
    assert metrics.default_radii(0.0) == (0.0,)
