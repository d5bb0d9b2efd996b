"""The splits of a data set as a configuration asks for them."""

from __future__ import annotations

from collections.abc import Callable

from smoothheads.data.base import DataInfo, Dataset, Split, Splits
from smoothheads.data.config import DataConfig
from smoothheads.data.downscale import downscaled_info
from smoothheads.data.subset import hold_out, select

Read = Callable[[DataConfig, Split], Dataset]


def read_split(config: DataConfig, split: Split) -> Dataset:
    """A whole split, with images of the size that is asked for."""
    dataset = config.read(split)
    return dataset if config.downscale == 1 else dataset.downscaled(config.downscale)


def load(config: DataConfig, read: Read = read_split) -> Splits:
    """All splits for training. The subset is chosen first, then the validation images are cut from it.
    Whoever needs the same files many times can `read` them once."""
    train, validation = hold_out(select(read(config, "train"), config.subset), config.validation)
    return Splits(train, validation, read(config, "test"))


def load_test(config: DataConfig) -> Dataset:
    """The whole test split, which is all that certification needs; the training images may be absent."""
    return read_split(config, "test")


def describe(config: DataConfig) -> DataInfo:
    """The facts of a data set; those of the published ones are known without their files."""
    if config.known is None:
        return load_test(config).info
    return config.known if config.downscale == 1 else downscaled_info(config.known, config.downscale)


def augments(config: DataConfig) -> bool:
    """Whether training images are cropped and flipped: by default those of CIFAR and of folders."""
    return config.augmented if config.augment == "auto" else config.augment == "crop-flip"
