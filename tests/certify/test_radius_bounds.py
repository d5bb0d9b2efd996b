"""Radii are rounded down, samples and integer perturbations agree with them."""

from __future__ import annotations

import math
from decimal import Decimal

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothheads.certify.bounds import (
    clopper_pearson_lower,
    max_radius,
    minimum_n,
    squared_grid_budget,
)
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise.laws import l2_radius, probability_above
from smoothheads.types import format_radius

CERTIFIED = [  # alpha, k, n, radius / sigma
    (0.001, 66, 100, 0.004135826463),
    (0.001, 99, 100, 1.34925903881),
    (0.001, 100, 100, 1.500475024121),
    (0.001, 1000, 1000, 2.463262614781),
    (0.001, 9900, 10000, 2.212419665102),
    (0.001, 10000, 10000, 3.198577514738),
    (0.001, 50490, 100000, 2.243125094514e-05),
    (0.001, 60000, 100000, 0.2409447922347),
    (0.001, 80000, 100000, 0.8276515631408),
    (0.001, 90000, 100000, 1.264844690337),
    (0.001, 99000, 100000, 2.289999955214),
    (0.001, 99900, 100000, 3.000200987668),
    (0.001, 99990, 100000, 3.490207680147),
    (0.001, 99999, 100000, 3.739126668543),
    (0.001, 100000, 100000, 3.811456563390),
    (0.0005, 100000, 100000, 3.787758865940),
    (0.001, 1000000, 1000000, 4.346773698701),
    (0.01, 80, 100, 0.498094514404),
    (0.05, 10, 10, 0.6468467969811),
]
WRITTEN = [
    (100000, "0.952864"),
    (99999, "0.934781"),
    (99000, "0.572499"),
    (80000, "0.206912"),
    (50489, "0.000000"),
]


@pytest.mark.parametrize(("alpha", "k", "n", "expected"), CERTIFIED)
def test_vectors(alpha: float, k: int, n: int, expected: float) -> None:
    assert l2_radius(clopper_pearson_lower(k, n, alpha), 1.0) == pytest.approx(expected, rel=5e-11)


@pytest.mark.parametrize(("k", "text"), WRITTEN)
def test_written_radius_is_rounded_down(k: int, text: str) -> None:
    assert format_radius(l2_radius(clopper_pearson_lower(k, 100_000, 0.001), 0.25)) == text


@pytest.mark.parametrize(
    ("alpha", "n", "first"), [(0.001, 100, 66), (0.001, 1000, 550), (0.001, 10000, 5156)]
)
def test_first_count_that_certifies(alpha: float, n: int, first: int) -> None:
    assert l2_radius(clopper_pearson_lower(first - 1, n, alpha), 1.0) == 0.0
    assert l2_radius(clopper_pearson_lower(first, n, alpha), 1.0) > 0.0


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.floats(0.5, 1.0, exclude_max=True), st.floats(1e-15, 0.4).map(lambda miss: 1 - miss)),
    st.floats(0.05, 4.0),
)
def test_radius_never_exceeds_the_exact_one(p_lower: float, sigma: float) -> None:
    radius = l2_radius(p_lower, sigma)
    with mpmath.workdps(40):
        assert radius == 0 or mpmath.ncdf(mpmath.mpf(radius) / mpmath.mpf(sigma)) <= mpmath.mpf(p_lower)


def test_without_rounding_down_some_radii_would_be_too_large() -> None:
    from scipy import special

    levels = [float(p) for p in np.linspace(0.500001, 0.999999, 200)]
    with mpmath.workdps(40):
        broken = sum(mpmath.ncdf(mpmath.mpf(float(special.ndtri(p)))) > p for p in levels)
    assert broken > 10


@given(st.floats(0, 50))
def test_text_never_exceeds_the_number(radius: float) -> None:
    text = format_radius(radius)
    assert float(text) <= radius
    assert Decimal(radius) < Decimal(text) + Decimal("0.000001")
    assert format_radius(float(text)) == text


@settings(deadline=None)
@given(st.floats(1e-6, 5.0), st.floats(0.05, 2.0))
def test_probability_of_a_radius_is_rounded_up(ratio: float, sigma: float) -> None:
    p = probability_above(ratio * sigma, sigma)
    with mpmath.workdps(40):
        assert p >= mpmath.ncdf(mpmath.mpf(ratio * sigma) / mpmath.mpf(sigma))
    assert l2_radius(p, sigma) == pytest.approx(ratio * sigma, rel=1e-8, abs=1e-9)


def test_half_certifies_nothing_and_one_is_refused() -> None:
    assert l2_radius(0.5, 1.0) == 0.0
    assert l2_radius(0.3, 1.0) == 0.0
    with pytest.raises(SoundnessError):
        l2_radius(1.0, 1.0)
    for sigma in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ConfigError):
            l2_radius(0.9, sigma)


@pytest.mark.parametrize(
    ("ratio", "n"),
    [(1, 40), (2, 301), (3, 5114), (3.5, 29691), (3.8, 95477), (4, 218105), (4.5, 2033081), (5, 24098087)],
)
def test_samples_that_certify_a_radius(ratio: float, n: int) -> None:
    assert max_radius(n, 0.001, 0.5) >= ratio * 0.5 > max_radius(n - 1, 0.001, 0.5)


def test_minimum_n() -> None:
    assert [minimum_n(alpha) for alpha in (0.05, 0.01, 0.001)] == [5, 7, 10]
    assert minimum_n(0.25) == 3  # two hits of two show p >= 1/2 exactly, which is an abstention


def test_grid_budget_is_exact() -> None:
    assert squared_grid_budget(0.9528641408, 255) == 59039
    assert squared_grid_budget(0.0, 255) == -1
    assert squared_grid_budget(1.0, 16) == 255  # strict: a perturbation of norm exactly 1 is not covered
    assert squared_grid_budget(math.nextafter(1.0, 2.0), 16) == 256


def test_a_radius_with_few_decimals_is_written_as_it_is() -> None:
    """Rounding 0.3 down to 0.299999 would take it out of the column 0.3 of its own table."""
    for radius in (0.3, 0.7, 1.1, 0.1, 0.25, 2.9):
        assert float(format_radius(radius)) == radius
    assert format_radius(0.29999999) == "0.299999"
    assert format_radius(0.1 + 0.2) == "0.300000"


@pytest.mark.parametrize("sigma", [1e-300, 0.0, -1.0, math.inf, math.nan, 1e9])
def test_a_sigma_beyond_all_images_is_refused(sigma: float) -> None:
    with pytest.raises(ConfigError, match="sigma"):
        l2_radius(0.9, sigma)
