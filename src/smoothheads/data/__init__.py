"""Data sets: grid integers with their q, classes, mean, deviation and fingerprint."""

from __future__ import annotations

from smoothheads.config import DataConfig
from smoothheads.data.arrays import ArrayDataset, from_arrays
from smoothheads.data.base import DataInfo, Dataset, Split, Splits
from smoothheads.data.cifar import CIFAR10, CIFAR100, cifar10, cifar100
from smoothheads.data.digits import INFO as DIGITS
from smoothheads.data.digits import digits
from smoothheads.data.downscale import downscaled_info
from smoothheads.data.folder import FolderDataset, image_folder
from smoothheads.data.loader import Batch, Loader, plain_batches
from smoothheads.data.mnist import FASHION_MNIST, MNIST, fashion_mnist, mnist
from smoothheads.data.npz import npz
from smoothheads.data.read import read_image
from smoothheads.data.subset import hold_out, select

__all__ = [
    "ArrayDataset",
    "Batch",
    "DataInfo",
    "Dataset",
    "FolderDataset",
    "Loader",
    "Splits",
    "augments",
    "describe",
    "from_arrays",
    "load",
    "load_test",
    "plain_batches",
    "read_image",
    "select",
]

PUBLISHED = {info.name: info for info in (DIGITS, CIFAR10.info, CIFAR100.info, MNIST, FASHION_MNIST)}


def load(config: DataConfig) -> Splits:
    """All splits for training. The subset is chosen first, then the validation images are cut from it."""
    train, validation = hold_out(select(_read(config, "train"), config.subset), config.validation)
    return Splits(train, validation, load_test(config))


def load_test(config: DataConfig) -> Dataset:
    """The whole test split, which is all that certification needs; the training images may be absent."""
    return _read(config, "test")


def describe(config: DataConfig) -> DataInfo:
    """The facts of a data set; those of the published ones are known without their files."""
    if config.name not in PUBLISHED:
        return load_test(config).info
    info = PUBLISHED[config.name]
    return info if config.downscale == 1 else downscaled_info(info, config.downscale)


def augments(config: DataConfig) -> bool:
    """Whether training images are cropped and flipped: by default those of CIFAR and of folders."""
    if config.augment == "auto":
        return config.name in ("cifar10", "cifar100", "folder")
    return config.augment == "crop-flip"


def _read(config: DataConfig, split: Split) -> Dataset:
    dataset = _source(config, split)
    return dataset if config.downscale == 1 else dataset.downscaled(config.downscale)


def _source(config: DataConfig, split: Split) -> ArrayDataset | FolderDataset:
    match config.name:
        case "digits":
            return digits(split)
        case "cifar10":
            return cifar10(config.root, split)
        case "cifar100":
            return cifar100(config.root, split)
        case "mnist":
            return mnist(config.root, split)
        case "fashion-mnist":
            return fashion_mnist(config.root, split)
        case "folder":
            return image_folder(config.root, split)
        case "npz":
            return npz(config.root, split)
