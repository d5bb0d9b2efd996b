"""Intervals over images, and over seeds and images."""

from __future__ import annotations

import numpy as np
import pytest

from smoothheads.studies.statistics import crossed_interval, gain


def test_a_certain_gain_has_intervals_of_one_point() -> None:
    found = gain(np.full((3, 200), 0.1))
    assert found.value == pytest.approx(0.1)
    assert found.images == pytest.approx((0.1, 0.1))
    assert found.seeds == pytest.approx((0.1, 0.1))
    assert found.verdict == "confirmed"
    assert gain(np.full((3, 200), -0.1)).verdict == "contradicted"


def test_one_seed_has_an_interval_over_images_alone() -> None:
    values = np.random.default_rng(1).normal(size=(1, 500))
    found = gain(values)
    assert found.seeds is None
    assert found.interval == found.images
    assert found.verdict == "undecided"


@pytest.mark.parametrize(("seed_effect", "image_effect"), [(0.0, 0.0), (1.0, 0.0), (0.0, 3.0), (1.0, 3.0)])
@pytest.mark.parametrize("seeds", [2, 3, 6])
def test_the_interval_over_seeds_and_images_covers_the_truth(
    seeds: int, seed_effect: float, image_effect: float
) -> None:
    """95 % of 400 repetitions are 380; below 355 happens by chance once in 10,000."""
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(400):
        values = (
            seed_effect * rng.normal(size=(seeds, 1))
            + image_effect * rng.normal(size=(1, 30))
            + rng.normal(size=(seeds, 30))
        )
        low, high = crossed_interval(values)
        covered += low <= 0 <= high
    assert covered >= 355
