from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothheads.data import ArrayDataset, DataInfo, Dataset, SubsetConfig, from_arrays, select
from smoothheads.data.folder import FolderDataset
from smoothheads.data.loader import Batch, Loader, Shards, crop_flip, plain_batches, random_resized_box
from smoothheads.errors import ConfigError, DataError
from smoothheads.seeding import generator

from .builders import folder_of_images, image_folder, numbered, pictures


def in_memory(count: int) -> ArrayDataset:
    return from_arrays(pictures(count, (3, 8, 8)), numbered(count), classes=list("0123456789"))


@pytest.fixture
def folder(tmp_path: Path) -> Dataset:
    folder_of_images(tmp_path)
    return select(image_folder(tmp_path, "train"), SubsetConfig(indices=(11, 3, 4, 9, 0, 7, 5)))


def same(left: list[Batch], right: list[Batch]) -> bool:
    pairs = zip(left, right, strict=True)
    return all(torch.equal(a, b) for one, two in pairs for a, b in zip(one, two, strict=True))


@given(count=st.integers(1, 70), size=st.integers(1, 80), epoch=st.integers(0, 5))
@settings(deadline=None)
def test_no_image_is_dropped_and_batches_are_near_equal(count: int, size: int, epoch: int) -> None:
    loader = Loader(in_memory(count), size, seed=1, augment=True)
    batches = list(loader.epoch(epoch))
    sizes = [len(batch.labels) for batch in batches]
    assert len(batches) == loader.steps_per_epoch == -(-count // size)
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    assert sorted(torch.cat([batch.positions for batch in batches]).tolist()) == list(range(count))


@given(start=st.integers(0, 6), epoch=st.integers(0, 3))
@settings(deadline=None, max_examples=20)
def test_any_first_step_gives_the_same_bits(start: int, epoch: int) -> None:
    loader = Loader(in_memory(25), 4, seed=2, augment=True)
    assert same(list(loader.epoch(epoch))[start:], list(loader.epoch(epoch, start_step=start)))


def test_order_and_augmentation_change_with_epoch_and_seed() -> None:
    dataset = in_memory(40)
    batches = [
        next(Loader(dataset, 20, seed=seed, augment=False).epoch(epoch)).positions.tolist()
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert len({tuple(batch) for batch in batches}) == 4


def test_one_image_looks_different_in_every_epoch_and_run() -> None:
    """Eighteen looks (nine places, mirrored or not); forty draws show most of them."""
    dataset = in_memory(1)
    for key in ("epoch", "seed"):
        loaders = [Loader(dataset, 1, seed=i if key == "seed" else 0, augment=True) for i in range(40)]
        epochs = [i if key == "epoch" else 0 for i in range(40)]
        batches = [next(one.epoch(epoch)) for one, epoch in zip(loaders, epochs, strict=True)]
        assert len({batch.images.numpy().tobytes() for batch in batches}) >= 10


def test_steps_are_augmented_differently() -> None:
    same_images = from_arrays(np.repeat(pictures(1, (8, 8)), 40, axis=0), numbered(40))
    batches = Loader(same_images, 1, seed=0, augment=True).epoch(0)
    assert len({batch.images.numpy().tobytes() for batch in batches}) >= 10


def test_the_order_is_the_keyed_permutation() -> None:
    expected = torch.randperm(40, generator=generator(5, "order", 3)).tolist()
    batches = Loader(in_memory(40), 7, seed=5, augment=True).epoch(3)
    assert torch.cat([batch.positions for batch in batches]).tolist() == expected


def test_the_global_generator_is_left_alone(folder: Dataset) -> None:
    before = torch.get_rng_state()
    list(Loader(in_memory(9), 4, seed=0, augment=True).epoch(0))
    list(Loader(folder, 4, seed=0, augment=True, workers=1).epoch(0))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("augment", [True, False])
def test_folders_give_the_same_bits_for_any_number_of_workers(folder: Dataset, augment: bool) -> None:
    alone = list(Loader(folder, 3, seed=4, augment=augment).epoch(1))
    helped = list(Loader(folder, 3, seed=4, augment=augment, workers=2).epoch(1))
    late = list(Loader(folder, 3, seed=4, augment=augment, workers=1).epoch(1, start_step=1))
    assert same(alone, helped)
    assert same(alone[1:], late)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("workers", [0, 1])
def test_parts_of_a_step_are_those_of_the_whole(folder: Dataset, count: int, workers: int) -> None:
    """Also their crops and flips, whoever reads them."""
    for dataset in (folder, in_memory(7)):
        whole = list(Loader(dataset, 4, seed=1, augment=True).epoch(2))
        places = [Shards(count, number, number + 1) for number in range(count)]
        loaders = [Loader(dataset, 4, 1, augment=True, workers=workers, shards=place) for place in places]
        parts = zip(*(loader.epoch(2) for loader in loaders), strict=True)
        assert same(whole, [Batch(*map(torch.cat, zip(*step, strict=True))) for step in parts])
        assert [len(batch.labels) for batch in whole] == loaders[0].step_sizes()


def test_micro_batches_differ_by_one_image_at_most() -> None:
    bounds = Shards(5, 0, 5).bounds(13)
    assert bounds == [0, 3, 6, 9, 11, 13]
    assert Shards(5, 2, 4).bounds(13) == bounds[2:5]


def test_plain_batches_are_shared_out() -> None:
    whole = list(plain_batches(in_memory(9), 2))
    parts = [list(plain_batches(in_memory(9), 2, first=first, every=2)) for first in range(2)]
    assert same(whole[0::2], parts[0])
    assert same(whole[1::2], parts[1])
    assert list(plain_batches(in_memory(3), 2, first=2, every=3)) == []


def test_a_folder_image_is_augmented_by_its_own_key(folder: Dataset) -> None:
    """The batch it falls into does not matter, so that neither does the step size."""
    small = Batch(*map(torch.cat, zip(*Loader(folder, 2, seed=4, augment=True).epoch(1), strict=True)))
    large = next(Loader(folder, 7, seed=4, augment=True).epoch(1))
    assert same([small], [large])
    assert isinstance(folder, FolderDataset)
    for image, position in zip(large.images, large.positions.tolist(), strict=True):
        expected = folder.augmented(position, generator(4, "augment", 1, position))
        assert np.array_equal(image.numpy(), expected.astype(np.float32) / np.float32(255))


def test_folder_batches_are_the_right_images(folder: Dataset) -> None:
    for batch in Loader(folder, 3, seed=4, augment=False).epoch(0):
        for image, position in zip(batch.images, batch.positions.tolist(), strict=True):
            assert np.array_equal(image.numpy(), folder.image(position).astype(np.float32) / np.float32(255))


def test_an_empty_split_has_no_plain_batches() -> None:
    assert list(plain_batches(in_memory(3).take(np.array([], np.int64)), 4)) == []


class Mislabelled:
    """A data set of somebody else's making, which nothing has checked yet."""

    def __init__(self) -> None:
        self._good = in_memory(4)
        self.indices, self.fingerprint = self._good.indices, "none"
        self.labels = np.array([0, 1, 10, 2], np.int64)

    @property
    def info(self) -> DataInfo:
        return self._good.info

    def image(self, position: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        return self._good.image(position)

    def take(self, positions: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Dataset:
        return self._good.take(positions)

    def downscaled(self, factor: int) -> Dataset:
        return self._good.downscaled(factor)

    def __len__(self) -> int:
        return 4


def test_labels_are_checked_and_foreign_data_sets_work() -> None:
    dataset = Mislabelled()
    with pytest.raises(DataError, match=r"label at position 2 .* is 10"):
        Loader(dataset, 2, seed=0, augment=True)
    dataset.labels = np.array([0, 1, 2, 3], np.int64)
    expected = list(Loader(in_memory(4), 2, seed=0, augment=True).epoch(0))
    got = list(Loader(dataset, 2, seed=0, augment=True).epoch(0))
    assert all(torch.equal(a.images, b.images) for a, b in zip(expected, got, strict=True))


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="images_per_step >= 1"):
        Loader(in_memory(3), 0, seed=0, augment=True)
    with pytest.raises(ConfigError, match="size >= 1"):
        list(plain_batches(in_memory(3), 0))
    with pytest.raises(DataError, match="no images to train on"):
        Loader(in_memory(3).take(np.array([], np.int64)), 1, seed=0, augment=True)


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
    monkeypatch.setattr("smoothheads.data.loader.ATTEMPTS", 0)
    assert random_resized_box(*size, stream()) == box


def test_a_single_pixel_has_a_box() -> None:
    assert random_resized_box(1, 1, stream()) == (0, 0, 1, 1)
