from __future__ import annotations

import numpy as np
import pytest
import torch

from smoothheads.data.augment import crop_flip, random_resized_box

from .builders import pictures

COUNT = 4000


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def marked(count: int, side: int = 16) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """One bright pixel right of the centre shows how far an image was moved and whether it was mirrored."""
    images = np.zeros((count, 1, side, side), np.uint8)
    images[:, 0, side // 2, side // 2 + 3] = 255
    return images


def test_shifts_are_uniform_and_half_is_mirrored() -> None:
    side, pad = 16, 2
    result = crop_flip(marked(COUNT), stream())
    rows, columns = np.nonzero(result.reshape(COUNT, side, side))[1:]
    assert len(rows) == COUNT  # an eighth of the side never moves the mark out
    counts = np.bincount(rows - (side // 2 - pad), minlength=5)
    assert counts.shape == (5,)
    assert (np.abs(counts - COUNT / 5) < 150).all()  # 5.9 standard deviations of 25.3
    mirrored = columns < side // 2
    assert abs(mirrored.sum() - COUNT / 2) < 190  # 6 standard deviations of 31.6
    plain = np.bincount(columns[~mirrored] - (side // 2 + 3 - pad), minlength=5)
    assert plain.shape == (5,)
    assert plain.min() > 280


def test_each_result_is_a_window_of_the_padded_image() -> None:
    images = pictures(20, (3, 8, 16))
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (2, 2)))
    for image, result in zip(padded, crop_flip(images, stream()), strict=True):
        windows = [image[:, y : y + 8, x : x + 16] for y in range(3) for x in range(5)]
        both = windows + [window[:, :, ::-1] for window in windows]
        assert any(np.array_equal(result, window) for window in both)


def test_each_side_is_padded_by_an_eighth_of_its_own() -> None:
    images = np.ones((500, 1, 8, 24), np.uint8)
    dark = crop_flip(images, stream()) == 0
    assert dark.all(axis=3).sum(axis=2).max() == 1  # whole rows
    assert dark.all(axis=2).sum(axis=2).max() == 3  # whole columns


def test_the_generator_decides() -> None:
    images = pictures(20, (1, 8, 8))
    assert np.array_equal(crop_flip(images, stream(1)), crop_flip(images, stream(1)))
    assert not np.array_equal(crop_flip(images, stream(1)), crop_flip(images, stream(2)))
    assert np.array_equal(images, pictures(20, (1, 8, 8)))


@pytest.mark.parametrize("size", [(500, 375), (224, 224), (100, 400)])
def test_boxes_lie_inside_and_have_the_announced_form(size: tuple[int, int]) -> None:
    width, height = size
    generator = stream()
    areas = []
    for _ in range(500):
        left, top, right, bottom = random_resized_box(width, height, generator)
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        assert 0.72 <= (right - left) / (bottom - top) <= 1.38
        areas.append((right - left) * (bottom - top) / (width * height))
    assert min(areas) >= 0.07
    if size == (224, 224):
        assert min(areas) < 0.12
        assert max(areas) > 0.85


@pytest.mark.parametrize(("size", "box"), [((1000, 10), (493, 0, 506, 10)), ((9, 900), (0, 444, 9, 456))])
def test_a_strip_falls_back_to_its_centre(
    size: tuple[int, int], box: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smoothheads.data.augment.ATTEMPTS", 0)
    assert random_resized_box(*size, stream()) == box


def test_a_single_pixel_has_a_box() -> None:
    assert random_resized_box(1, 1, stream()) == (0, 0, 1, 1)
