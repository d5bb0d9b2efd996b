"""Other threats from the same votes: published vectors, and classifiers whose true answer is a distance."""

from __future__ import annotations

import math

import pytest
from scipy import special

from smoothheads.certify.threats import linf_radius, linf_radius_of_l1, linf_radius_uniform, top_k_radius
from smoothheads.errors import ConfigError

UNIFORM_1 = 1 / math.sqrt(3)  # sigma of uniform noise on [-1, 1]


@pytest.mark.parametrize(
    ("l2", "dimension", "levels"), [(0.434711, 3072, 2), (1.738843, 3072, 8), (1.521488, 150_528, 1)]
)
def test_linf_from_l2(l2: float, dimension: int, levels: int) -> None:
    assert linf_radius(l2, dimension) * 255 == pytest.approx(levels, rel=1e-5)


def test_corners_of_the_linf_ball_lie_inside() -> None:
    for dimension in (1, 7, 3072):
        assert linf_radius(0.3, dimension) * math.sqrt(dimension) < 0.3
        assert linf_radius_of_l1(0.3, dimension) * dimension < 0.3
        assert linf_radius_of_l1(0.3, dimension) * dimension == pytest.approx(0.3)


def test_linf_of_uniform_noise_is_the_share_of_a_cube() -> None:
    """Cubes of side 2L, shifted by r in every coordinate, share (1 - r/2L)^d of their volume."""
    radius = linf_radius_uniform(0.9, UNIFORM_1, 20)
    assert (1 - radius / 2) ** 20 == pytest.approx(1.5 - 0.9)
    assert linf_radius_uniform((1 + 0.4) / 2, UNIFORM_1, 1) == pytest.approx(0.4)  # a half-line, 0.4 away
    assert linf_radius_uniform(0.5, UNIFORM_1, 9) == 0.0


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


def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigError, match="dimension >= 1"):
        linf_radius(1.0, 0)
    with pytest.raises(ConfigError, match="radius >= 0"):
        linf_radius(-1.0, 3)
    with pytest.raises(ConfigError, match="p_lower must be from 0 to below 1"):
        linf_radius_uniform(1.0, 1.0, 3)
    for k in (0, 2):
        with pytest.raises(ConfigError, match=f"k is {k}; choose 1 <= k <= 1, the number of other classes"):
            top_k_radius(0.4, [0.3], k, 1.0)
