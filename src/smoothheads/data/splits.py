"""The splits that a configuration asks for: subsets, and validation images that are held out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.arrays import downscaled_info
from smoothheads.data.base import DataConfig, DataInfo, Dataset, Split, Splits, SubsetConfig
from smoothheads.errors import DataError
from smoothheads.seeding import derive

Read = Callable[[DataConfig, Split], Dataset]


def read_split(config: DataConfig, split: Split) -> Dataset:
    """Returns a full split, downscaled as the configuration says."""
    dataset = config.read(split)
    return dataset if config.downscale == 1 else dataset.downscaled(config.downscale)


def load(config: DataConfig, read: Read = read_split) -> Splits:
    """Returns all splits for training.

    The subset is chosen first, then the validation images are cut from it. `read` may remember splits, for
    those who need the same files many times.
    """
    # The test images are read apart, and nothing is chosen by them.
    train, validation = hold_out(select(read(config, "train"), config.subset), config.validation)
    return Splits(train, validation, read(config, "test"))


def load_test(config: DataConfig) -> Dataset:
    """Returns the full test split, which is all that certification needs; no training image is read."""
    return read_split(config, "test")


def describe(config: DataConfig) -> DataInfo:
    """Returns the facts of a data set; those of published sets are known without their files."""
    if config.known is None:
        return load_test(config).info
    return config.known if config.downscale == 1 else downscaled_info(config.known, config.downscale)


def augments(config: DataConfig) -> bool:
    """Returns whether training images are cropped and flipped, by default those of CIFAR and of folders."""
    return config.augmented if config.augment == "auto" else config.augment == "crop-flip"


def select(dataset: Dataset, subset: SubsetConfig) -> Dataset:
    """Returns the images that `subset` names, in its order; its positions are those in `dataset`."""
    where = f"{dataset.info.name} ({len(dataset)} images)"
    positions = np.arange(len(dataset), dtype=np.int64)
    # Explicit indices come first; a repeated image would count twice in every average.
    if subset.indices is not None:
        positions = np.array(subset.indices, dtype=np.int64)
        if not positions.size:
            raise DataError("subset.indices is empty; leave it out to use all images.")
        outside = positions[(positions < 0) | (positions >= len(dataset))]
        if outside.size:
            raise DataError(f"{where} has no image {outside[0]}; drop that index.")
        values, counts = np.unique(positions, return_counts=True)
        if counts.max() > 1:
            raise DataError(
                f"subset.indices has {values[counts > 1][0]} more than once; drop the repetition."
            )
    # Then offset, every and first, as in `--skip` and `--max` of the field's scripts.
    positions = positions[subset.offset :: subset.every][: subset.first]
    if not positions.size:
        remedy = f"; lower subset.offset {subset.offset}." if subset.offset else "."
        raise DataError(f"No images of {where} are left{remedy}")
    # All images in their order are the data set itself, with its own fingerprint.
    return dataset if np.array_equal(positions, np.arange(len(dataset))) else dataset.take(positions)


def hold_out(dataset: Dataset, fraction: float) -> tuple[Dataset, Dataset]:
    """Returns the images to train on and the fraction held out, which are the same for every training seed.

    A fraction above 0 holds out at least one image. Both parts keep the order of the full set.
    """
    count = len(dataset)
    held = max(1, round(fraction * count)) if fraction > 0 else 0
    if held >= count:
        raise DataError(
            f"data.validation holds out {held} of {count} images and leaves none to train on; lower it."
        )
    # The permutation is fixed, so that runs with other seeds are validated on the same images.
    order = fixed_permutation(count, "validation")
    return dataset.take(np.sort(order[held:])), dataset.take(np.sort(order[:held]))


def fixed_permutation(count: int, purpose: str) -> NDArray[np.int64]:
    """Returns a shuffle of 0..count-1 that never changes: numpy froze the stream of RandomState for good."""
    state = np.random.RandomState(derive(0, purpose) % 2**32)
    return state.permutation(count).astype(np.int64)
