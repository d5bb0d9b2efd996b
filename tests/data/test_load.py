"""The way in: configuration to splits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from smoothheads.data import Digits, SubsetConfig, augments, describe, load, load_test, named
from smoothheads.errors import DataError

from .builders import folder_of_images

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
    with pytest.raises(DataError, match="8x8 and downscale 3"):
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
    with pytest.raises(DataError, match=f"a root for the data set '{name}', got none"):
        load_test(named(name))
    with pytest.raises(DataError, match="got no such file or folder"):
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
    with pytest.raises(DataError, match="a root for the data set 'npz', got none"):
        describe(named("npz"))
