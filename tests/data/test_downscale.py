from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothheads.data import from_arrays
from smoothheads.data.downscale import average
from smoothheads.errors import DataError

from .builders import numbered, pictures


@given(factor=st.integers(1, 6), high=st.integers(1, 3), wide=st.integers(1, 3), seed=st.integers(0, 99))
@settings(deadline=None)
def test_the_exact_mean_with_halves_up(factor: int, high: int, wide: int, seed: int) -> None:
    images = pictures(2, (1, high * factor, wide * factor), seed=seed)
    result = average(images, factor)
    assert result.shape == (2, 1, high, wide)
    group = images[1, 0, -factor:, :factor].astype(int)
    mean = Fraction(int(group.sum()), factor * factor)
    assert int(result[1, 0, -1, 0]) == floor(mean + Fraction(1, 2))


def test_extremes_stay_on_the_grid() -> None:
    assert average(np.full((1, 1, 32, 32), 255, np.uint8), 32).tolist() == [[[[255]]]]
    assert average(np.array([[[[0, 1], [0, 1]]]], np.uint8), 2).tolist() == [[[[1]]]]  # a half, rounded up


def test_a_factor_that_does_not_divide_is_refused() -> None:
    with pytest.raises(DataError, match="6x8 and downscale 4"):
        from_arrays(pictures(2, (6, 8)), numbered(2)).downscaled(4)
