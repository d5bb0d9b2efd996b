from __future__ import annotations

import warnings
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothheads.data import ArrayDataset, DataInfo, from_arrays
from smoothheads.data.arrays import average, statistics
from smoothheads.errors import DataError
from smoothheads.types import Grid

from .builders import numbered, pictures


def test_layouts_are_told_apart() -> None:
    grey = pictures(5, (6, 4))
    colour = pictures(5, (3, 6, 4))
    assert from_arrays(grey, numbered(5)).info.shape == (1, 6, 4)
    first = from_arrays(colour, numbered(5))
    last = from_arrays(colour.transpose(0, 2, 3, 1), numbered(5))
    assert first.info.shape == (3, 6, 4)
    assert first.fingerprint == last.fingerprint


def test_torch_and_wider_integers_give_the_same_data_set() -> None:
    images, labels = pictures(5, (3, 6, 4)), numbered(5)
    wanted = from_arrays(images, labels).fingerprint
    assert from_arrays(torch.from_numpy(images), torch.from_numpy(labels)).fingerprint == wanted
    assert from_arrays(images.astype(np.int64), labels.astype(np.int16)).fingerprint == wanted
    assert from_arrays(images.tolist(), labels.tolist()).fingerprint == wanted


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.full((4, 8, 8), 0.5, np.float32), r"0\.5 of a step off the grid m / 255.*rint\(x \* 255\)"),
        (np.full((4, 8, 8), -0.5), r"undo a normalisation"),
        (np.full((4, 8, 8), np.nan), "NaN or infinite"),
        (np.zeros((4, 8, 8), bool), "not bool"),
        (np.full((4, 8, 8), 256), r"values in 256\.\.256"),
        (np.full((4, 8, 8), -1), r"values in -1\.\.-1"),
        (np.zeros((4, 3, 8, 3), np.uint8), "both ends"),
        (np.zeros((4, 5, 8, 5), np.uint8), "neither end"),
        (np.zeros((4, 8), np.uint8), r"shape \(4, 8\)"),
        (np.zeros((0, 8, 8), np.uint8), "needs images and labels"),
        (np.zeros((5, 8, 8), np.uint8), "5 labels"),
    ],
)
def test_wrong_images_are_refused(images: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(images, [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2, 3], r"label at position 3 .* is 3, .*0\.\.2"),
        ([0, -1, 2, 1], "label at position 1 .* is -1"),
        ([0.0, 1.0, 2.0, 1.5], "Labels must be integers"),
        ([[0, 0], [1, 0], [2, 0], [1, 0]], "Labels must be integers"),
        (list("abca"), "Labels must be integers"),
    ],
)
def test_wrong_labels_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(pictures(4, (8, 8)), labels, classes=["a", "b", "c"])


def test_labels_counted_from_one_are_noticed() -> None:
    with pytest.raises(DataError, match=r"are 1\.\.3.*counted from 0.*classes=4"):
        from_arrays(pictures(4, (8, 8)), [1, 2, 3, 1])
    assert from_arrays(pictures(4, (8, 8)), [1, 2, 3, 1], classes=4).info.classes == 4
    assert from_arrays(pictures(4, (8, 8)), [1, 3, 3, 1]).info.classes == 4


@pytest.mark.parametrize("q", [0, 256])
def test_the_grid_fits_a_byte(q: int) -> None:
    with pytest.raises(DataError, match=r"max_value must be in 1\.\.255"):
        from_arrays(np.zeros((1, 8, 8), np.uint8), [0], max_value=q)


def test_a_value_above_q_is_refused() -> None:
    with pytest.raises(DataError, match=r"0\.\.16"):
        from_arrays(np.full((1, 8, 8), 17), [0], max_value=16)


def test_statistics_are_those_of_the_pixels() -> None:
    images = pictures(50, (3, 7, 5), q=200)
    scaled = images / 200
    mean, std = statistics(images, 200)
    np.testing.assert_allclose(mean, scaled.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, scaled.std(axis=(0, 2, 3)), rtol=1e-12)
    assert from_arrays(images, numbered(50), max_value=200).info.mean == mean


def test_a_constant_channel_can_be_normalised() -> None:
    assert from_arrays(np.full((3, 4, 4), 9), [0, 1, 0]).info.std == (1.0,)


def test_given_statistics_are_kept_and_counted() -> None:
    images = pictures(4, (3, 6, 6))
    assert from_arrays(images, numbered(4), mean=[0, 0, 0], std=[1, 1, 1]).info.std == (1.0, 1.0, 1.0)
    with pytest.raises(DataError, match="mean needs one value per channel, hence 3"):
        from_arrays(images, numbered(4), mean=[0.5])


def test_the_callers_array_stays_his_own() -> None:
    images = pictures(4, (6, 6))
    dataset = from_arrays(images, numbered(4))
    before = dataset.image(0)
    images[:] = 0
    assert np.array_equal(dataset.image(0), before)
    assert images.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        dataset.images[0] = 0


@pytest.mark.parametrize("change", ["pixel", "label", "index", "grid"])
def test_any_change_changes_the_fingerprint(change: str) -> None:
    images, labels, indices = pictures(4, (1, 6, 6), q=100), numbered(4), np.arange(4)
    grid = Grid(254)
    info = DataInfo("own", Grid(255), (1, 6, 6), tuple("0123456789"), (0.5,), (0.2,))
    base = ArrayDataset(images, labels, info, indices)
    changed_images, changed_labels, changed_indices = images.copy(), labels.copy(), indices.copy()
    changed_images[2, 0, 3, 3] += 1
    changed_labels[1] += 1
    changed_indices[3] = 9
    changed = {
        "pixel": ArrayDataset(changed_images, labels, info, indices),
        "label": ArrayDataset(images, changed_labels, info, indices),
        "index": ArrayDataset(images, labels, info, changed_indices),
        "grid": ArrayDataset(images, labels, DataInfo("own", grid, *_rest(info)), indices),
    }[change]
    assert changed.fingerprint != base.fingerprint


def _rest(info: DataInfo) -> tuple[Any, ...]:
    return info.shape, info.class_names, info.mean, info.std


def test_direct_construction_is_checked() -> None:
    info = DataInfo("own", Grid(16), (1, 6, 6), ("a", "b"), (0.5,), (0.2,))
    labels = numbered(2, 2)
    with pytest.raises(DataError, match="uint8"):
        ArrayDataset(np.zeros((2, 1, 6, 6), np.int32), labels, info)
    with pytest.raises(DataError, match="shape"):
        ArrayDataset(np.zeros((2, 1, 6, 7), np.uint8), labels, info)
    with pytest.raises(DataError, match=r"in 0\.\.16"):
        ArrayDataset(np.full((2, 1, 6, 6), 17, np.uint8), labels, info)
    with pytest.raises(DataError, match="2 indices"):
        ArrayDataset(np.zeros((2, 1, 6, 6), np.uint8), labels, info, np.arange(3))


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
    with pytest.raises(DataError, match="downscale 4 does not divide the 6x8"):
        from_arrays(pictures(2, (6, 8)), numbered(2)).downscaled(4)


def test_from_arrays_warns_of_masks() -> None:
    masks = pictures(4, (8, 8), q=1)
    with pytest.warns(UserWarning, match=r"0 or 1 of 255, hence nearly black.*max_value=1"):
        from_arrays(masks, numbered(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_arrays(masks, numbered(4), max_value=1)
