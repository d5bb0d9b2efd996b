"""l1 radii: published vectors, half-lines whose true answer is a distance, and rounding towards less."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothheads.errors import ConfigError
from smoothheads.noise import Laplace, Uniform

UNIFORM_1 = 1 / math.sqrt(3)  # sigma of uniform noise on [-1, 1]
LAPLACE_1 = math.sqrt(2)  # sigma of Laplace noise of scale 1


def test_vectors() -> None:
    assert Uniform().radius(0.9, UNIFORM_1) == pytest.approx(0.8, rel=1e-11)
    assert Laplace().radius(0.9, LAPLACE_1) == pytest.approx(1.609438, abs=5e-7)
    assert Uniform().probability(0.8, UNIFORM_1) == pytest.approx(0.9, rel=1e-11)
    assert Laplace().probability(1.609438, LAPLACE_1) == pytest.approx(0.9, abs=5e-8)


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5])
def test_nothing_is_certified_up_to_one_half(p: float) -> None:
    assert Uniform().radius(p, 1.0) == Laplace().radius(p, 1.0) == 0.0


@pytest.mark.parametrize("distance", [1e-9, 0.1, 0.5, 0.9])
def test_radius_of_a_half_line(distance: float) -> None:
    """1[x > 0] at x = distance: the smoothed answer flips exactly there."""
    width, scale = 1.0, 1.5
    uniform, laplace = (width + distance) / (2 * width), 1 - 0.5 * math.exp(-distance / scale)
    radii = Uniform().radius(uniform, width * UNIFORM_1), Laplace().radius(laplace, scale * LAPLACE_1)
    assert radii == pytest.approx((distance, distance), rel=1e-6)


PROBABILITIES = st.floats(0.5, 1, exclude_min=True, exclude_max=True)
SIGMAS = st.floats(0.01, 10)


@given(PROBABILITIES, SIGMAS)
def test_radii_are_rounded_down(p: float, sigma: float) -> None:
    """Against 50 digits."""
    mp = mpmath.MPContext()
    mp.dps = 50
    exact_p, exact_sigma = mp.mpf(p), mp.mpf(sigma)
    uniform = 2 * mp.sqrt(3) * exact_sigma * (exact_p - mp.mpf(1) / 2)
    laplace = -exact_sigma / mp.sqrt(2) * mp.log(2 * (1 - exact_p))
    for got, exact in ((Uniform().radius(p, sigma), uniform), (Laplace().radius(p, sigma), laplace)):
        assert exact * (1 - mp.mpf(10) ** -11) < mp.mpf(got) < exact


@given(st.floats(1e-12, 20), SIGMAS)
def test_probabilities_are_rounded_up(radius: float, sigma: float) -> None:
    mp = mpmath.MPContext()
    mp.dps = 50
    exact_r, exact_sigma = mp.mpf(radius), mp.mpf(sigma)
    uniform = mp.mpf(1) / 2 + exact_r / (2 * mp.sqrt(3) * exact_sigma)
    laplace = 1 - mp.exp(-exact_r * mp.sqrt(2) / exact_sigma) / 2
    pairs = (Uniform().probability(radius, sigma), uniform), (Laplace().probability(radius, sigma), laplace)
    for got, exact in pairs:
        assert exact < mp.mpf(got) < exact + mp.mpf(10) ** -11 * (1 + exact)


def test_plans_use_the_same_map() -> None:
    p = np.array([0.55, 0.9, 0.999])
    np.testing.assert_allclose(Uniform().unit_radius(p), [Uniform().radius(each, 1.0) for each in p])
    np.testing.assert_allclose(Laplace().unit_radius(p), [Laplace().radius(each, 1.0) for each in p])


def test_no_radius_beyond_the_noise() -> None:
    assert Uniform().probability(math.sqrt(3) * 0.25, 0.25) >= 1
    assert Uniform().radius(1 - 1e-12, 0.25) < math.sqrt(3) * 0.25


@pytest.mark.parametrize("radius_of", [Uniform().radius, Laplace().radius])
def test_nonsense_is_refused(radius_of: Callable[[float, float], float]) -> None:
    for p, sigma in ((1.0, 1.0), (-0.1, 1.0), (0.9, 0.0), (0.9, math.inf), (math.nan, 1.0)):
        with pytest.raises(ConfigError):
            radius_of(p, sigma)
    for probability_of in (Uniform().probability, Laplace().probability):
        with pytest.raises(ConfigError, match="radius >= 0"):
            probability_of(-1.0, 1.0)
