from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothheads.data import (
    ArrayDataset,
    Dataset,
    SubsetConfig,
    augments,
    describe,
    fixed_permutation,
    from_arrays,
    load,
    load_test,
    named,
    select,
)
from smoothheads.data.published import Digits
from smoothheads.data.splits import hold_out
from smoothheads.errors import DataError

from .builders import folder_of_images, image_folder, numbered, pictures, write_image


def in_memory(count: int) -> ArrayDataset:
    return from_arrays(pictures(count, (4, 4)), numbered(count), classes=list("0123456789"))


@pytest.fixture(scope="module", params=["in memory", "streamed"])
def make(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], Dataset]:
    """Makes a data set of as many images, in memory or in a folder."""
    if request.param == "in memory":
        return in_memory
    root = tmp_path_factory.mktemp("pictures")
    for number in range(30):
        write_image(root / "train" / "a" / f"{number:02}.png", (8, 8), seed=number)
    folder = named("folder", root=str(root)).read("train")
    return lambda count: folder.take(np.arange(count))


subsets = st.builds(
    SubsetConfig,
    offset=st.integers(0, 12),
    every=st.integers(1, 9),
    first=st.none() | st.integers(1, 12),
    indices=st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=8, unique=True).map(tuple),
)


@given(count=st.integers(10, 30), subset=subsets)
@settings(deadline=None)
def test_a_selection_is_what_slicing_gives(
    make: Callable[[int], Dataset], count: int, subset: SubsetConfig
) -> None:
    whole = make(count)
    named = list(range(count) if subset.indices is None else subset.indices)
    expected = named[subset.offset :: subset.every][: subset.first]
    if not expected:
        with pytest.raises(DataError, match="are left"):
            select(whole, subset)
        return
    chosen = select(whole, subset)
    assert chosen.indices.tolist() == expected
    assert len(chosen) == len(expected)
    assert chosen.labels.tolist() == whole.labels[expected].tolist()
    for position, index in enumerate(expected):
        assert np.array_equal(chosen.image(position), whole.image(index))
    assert (chosen.fingerprint == whole.fingerprint) == (expected == list(range(count)))


@given(first=st.lists(st.integers(0, 11), min_size=4, unique=True), second=st.permutations(range(4)))
@settings(deadline=None)
def test_indices_are_those_of_the_original_split(
    make: Callable[[int], Dataset], first: list[int], second: list[int]
) -> None:
    whole = make(12)
    twice = select(select(whole, SubsetConfig(indices=tuple(first))), SubsetConfig(indices=tuple(second)))
    once = select(whole, SubsetConfig(indices=tuple(first[i] for i in second)))
    assert twice.indices.tolist() == once.indices.tolist()
    assert twice.fingerprint == once.fingerprint


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ((3, 10), r"arrays \(10 images\) has no image 10"),
        ((-1,), "no image -1"),
        ((), "is empty"),
        ((3, 4, 3), "3 more than once"),
    ],
)
def test_wrong_indices_are_refused(indices: tuple[int, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        select(in_memory(10), SubsetConfig(indices=indices))


def test_an_offset_chooses_other_images_of_the_same_step() -> None:
    chosen = select(in_memory(60), SubsetConfig(offset=10, every=20))
    assert chosen.indices.tolist() == [10, 30, 50]


def test_everything_is_the_data_set_itself() -> None:
    whole = in_memory(10)
    assert select(whole, SubsetConfig()) is whole
    assert select(whole, SubsetConfig(first=99)) is whole


@given(count=st.integers(2, 60), share=st.floats(0, 0.5))
@settings(deadline=None)
def test_holding_out_partitions(count: int, share: float) -> None:
    whole = in_memory(count)
    train, validation = hold_out(whole, share)
    assert len(validation) == (0 if share == 0 else max(1, round(share * count)))
    assert sorted([*train.indices.tolist(), *validation.indices.tolist()]) == list(range(count))


def test_holding_out_is_fixed_and_leaves_something() -> None:
    assert fixed_permutation(8, "validation").tolist() == fixed_permutation(8, "validation").tolist()
    assert fixed_permutation(8, "validation").tolist() != fixed_permutation(8, "digits").tolist()
    with pytest.raises(DataError, match="holds out 1 of 1"):
        hold_out(in_memory(1), 0.1)


def test_folders_can_be_cut(tmp_path: Path) -> None:
    folder_of_images(tmp_path)
    whole = image_folder(tmp_path, "train")
    part = whole.take(np.array([7, 2]))
    assert part.indices.tolist() == [7, 2]
    assert part.labels.tolist() == whole.labels[[7, 2]].tolist()
    assert np.array_equal(part.image(1), whole.image(2))
    assert part.fingerprint != whole.fingerprint


Name = Literal["digits", "cifar10", "cifar100", "mnist", "fashion-mnist", "folder", "npz"]


def test_the_subset_is_chosen_before_the_validation_cut() -> None:
    splits = load(Digits(subset=SubsetConfig(every=7, first=100), validation=0.2))
    together = sorted([*splits.train.indices.tolist(), *splits.validation.indices.tolist()])
    assert together == list(range(0, 700, 7))
    assert len(splits.validation) == 20
    assert len(splits.test) == 360  # the subset is one of training images


def test_a_folder_can_be_trained_on(tmp_path: Path) -> None:
    config = named(
        "folder", root=folder_of_images(tmp_path).root, size=224, downscale=7, subset=SubsetConfig(every=2)
    )
    splits = load(config)
    assert splits.train.info.shape == (3, 32, 32)
    assert splits.train.image(0).shape == (3, 32, 32)
    assert len(splits.train) + len(splits.validation) == 6


def test_a_downscale_that_does_not_divide_is_refused() -> None:
    with pytest.raises(DataError, match="downscale 3 does not divide the 8x8"):
        load_test(Digits(downscale=3))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("digits", False),
        ("cifar10", True),
        ("cifar100", True),
        ("mnist", False),
        ("fashion-mnist", False),
        ("folder", True),
        ("npz", False),
    ],
)
def test_augmentation_by_default(name: Name, expected: bool) -> None:
    assert augments(named(name)) is expected
    assert augments(named(name, augment="crop-flip")) is True
    assert augments(named(name, augment="none")) is False


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion-mnist", "folder", "npz"])
def test_every_data_set_on_disk_needs_a_root_that_exists(name: Name, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"The data set '{name}' needs to know where"):
        load_test(named(name))
    with pytest.raises(DataError, match="no file or folder"):
        load_test(named(name, root=str(tmp_path / "absent")))


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("digits", (1, 8, 8), 10),
        ("cifar10", (3, 32, 32), 10),
        ("cifar100", (3, 32, 32), 100),
        ("mnist", (1, 28, 28), 10),
        ("fashion-mnist", (1, 28, 28), 10),
    ],
)
def test_published_data_sets_are_known_without_their_files(
    name: Name, shape: tuple[int, int, int], classes: int
) -> None:
    info = describe(named(name))
    assert (info.name, info.shape, info.classes) == (name, shape, classes)
    assert len(info.mean) == len(info.std) == shape[0]
    halved = describe(named(name, downscale=2))
    assert (halved.shape[1], halved.class_names) == (shape[1] // 2, info.class_names)


def test_descriptions_are_those_of_the_loaded_data(tmp_path: Path) -> None:
    for config in (
        Digits(),
        Digits(downscale=4),
        named("folder", root=folder_of_images(tmp_path).root, size=224),
    ):
        assert describe(config) == load_test(config).info
    with pytest.raises(DataError, match="'npz' needs to know where"):
        describe(named("npz"))
