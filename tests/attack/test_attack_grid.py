from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from smoothheads.attack.ascend import move, squared_distance
from smoothheads.certify.bounds import squared_grid_budget
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.types import Grid, Pixels

Real = NDArray[np.float64]
FINITE = st.floats(-1e300, 1e300, allow_nan=False) | st.sampled_from([0.0, 1.0, -1.0, 5e-324])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Pixels, Real, int, Grid]:
    q = draw(st.sampled_from([1, 3, 16, 255]))
    shape = (1, draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    image = draw(arrays.arrays(np.uint8, shape, elements=st.integers(0, q)))
    direction = draw(arrays.arrays(np.float64, shape, elements=FINITE))
    return image, direction, draw(st.integers(0, 2 * q * q)), Grid(q)


@given(cases())
@settings(max_examples=300, deadline=None)
def test_budget_range_and_direction_are_kept_exactly(case: tuple[Pixels, Real, int, Grid]) -> None:
    image, direction, budget, grid = case
    before = image.copy()
    moved = move(*case)
    steps = [int(a) - int(b) for a, b in zip(moved.flat, image.flat, strict=True)]
    assert sum(step * step for step in steps) == squared_distance(image, moved) <= budget
    assert moved.dtype == np.uint8
    assert int(moved.max()) <= grid.max_value
    assert all(
        step * way >= 0 and (way != 0 or step == 0) for step, way in zip(steps, direction.flat, strict=True)
    )
    assert (image == before).all()


@given(cases())
@settings(max_examples=300, deadline=None)
def test_no_pixel_could_go_one_step_farther(case: tuple[Pixels, Real, int, Grid]) -> None:
    image, direction, budget, grid = case
    moved = move(*case)
    for place in np.ndindex(image.shape):
        further = moved.astype(np.int64)
        further[place] += int(np.sign(direction[place]))
        if direction[place] != 0 and 0 <= further[place] <= grid.max_value:
            assert int(np.square(further - image).sum()) > budget


@given(cases(), st.integers(-30, 30))
@settings(max_examples=100, deadline=None)
def test_the_length_of_the_direction_is_of_no_account(
    case: tuple[Pixels, Real, int, Grid], power: int
) -> None:
    image, direction, budget, grid = case
    plain = np.clip(direction, -1e6, 1e6).round(3)
    assert (move(image, plain, budget, grid) == move(image, plain * 2.0**power, budget, grid)).all()


def test_the_direction_survives_rounding() -> None:
    """A ball of radius 1 around a grey CIFAR image: 65,024 squared steps on 3,072 values."""
    rng = np.random.default_rng(0)
    image = np.full((3, 32, 32), 128, dtype=np.uint8)
    direction = rng.standard_normal(image.shape)
    budget = squared_grid_budget(1.0, 255)
    assert budget == 255**2 - 1
    steps = move(image, direction, budget, Grid(255)).astype(np.int64) - image
    assert int(np.square(steps).sum()) == budget  # cheap single steps use it up to the last
    cosine = np.vdot(steps, direction) / np.linalg.norm(steps) / np.linalg.norm(direction)
    assert cosine > 0.995


def test_equal_weights_share_the_budget() -> None:
    """No common multiple of the direction fits but 0; seven single steps do."""
    image = np.full((1, 3, 4), 8, dtype=np.uint8)
    moved = move(image, np.ones(image.shape), 7, Grid(16))
    assert sorted((moved - image).flat) == [0] * 5 + [1] * 7


def test_what_the_border_takes_goes_to_the_others() -> None:
    image = np.array([[[255, 100, 0]]], dtype=np.uint8)
    moved = move(image, np.array([[[1.0, 1.0, -1.0]]]), 50 * 50, Grid(255))
    assert moved.tolist() == [[[255, 150, 0]]]


def test_no_budget_or_no_direction_is_no_move() -> None:
    image = np.full((1, 2, 2), 5, dtype=np.uint8)
    assert (move(image, np.ones(image.shape), 0, Grid(16)) == image).all()
    still = move(image, np.zeros(image.shape), 100, Grid(16))
    assert (still == image).all()
    assert still is not image


def test_the_exact_threat_check_of_a_published_radius() -> None:
    image = np.zeros((3, 32, 32), dtype=np.uint8)
    budget = squared_grid_budget(0.9528641408, 255)
    assert budget == 59039
    assert squared_distance(image, move(image, np.ones(image.shape), budget, Grid(255))) <= 59039


def test_distances_do_not_wrap_around() -> None:
    black, white = np.zeros((3, 224, 224), dtype=np.uint8), np.full((3, 224, 224), 255, dtype=np.uint8)
    assert squared_distance(black, white) == squared_distance(white, black) == 3 * 224 * 224 * 255**2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_wrong_input_is_refused(bad: float) -> None:
    image = np.full((1, 2, 2), 5, dtype=np.uint8)
    with pytest.raises(SoundnessError, match="The direction must be finite"):
        move(image, np.full(image.shape, bad), 4, Grid(16))
    with pytest.raises(SoundnessError, match=r"its shape is \(1, 2, 3\)"):
        move(image, np.ones((1, 2, 3)), 4, Grid(16))
    with pytest.raises(ConfigError, match="The squared budget is -1"):
        move(image, np.ones(image.shape), squared_grid_budget(0.0, 16), Grid(16))
    with pytest.raises(SoundnessError, match=r"on a grid of 0\.\.4"):
        move(image, np.ones(image.shape), 4, Grid(4))
