"""The data sets of the field: scikit-learn's digits, MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100.

Their facts are known without their files. Each is read from the files that its authors publish, or from
parquet files as on the Hugging Face hub.
"""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import struct
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.arrays import ArrayDataset
from smoothheads.data.base import DATASETS, DataConfig, DataInfo, Split, damaged, existing, only_place
from smoothheads.data.parquet import find_parquet, published
from smoothheads.data.splits import fixed_permutation
from smoothheads.errors import DataError
from smoothheads.limits import read_unpacked
from smoothheads.types import Grid

DIGITS_TRAIN: Final = 1437
MNIST_PREFIX: dict[Split, str] = {"train": "train", "test": "t10k"}
CLOTHES = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)

CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal
shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CHECKSUMS = {  # MD5, as the authors of CIFAR publish them; nobody can make another file with one of these
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Digits(DataConfig):
    """The handwritten digits that come with scikit-learn: 1,797 images of 8x8, 17 grey levels (q = 16).

    scikit-learn's order follows the writers, so it is shuffled once and for all: the first 1,437 of the fixed
    permutation are the training split, the other 360 the test split. Mean and standard deviation are those of
    the training split.
    """

    name: ClassVar[str] = "digits"
    known: ClassVar[DataInfo] = DataInfo(
        "digits", Grid(16), (1, 8, 8), tuple("0123456789"), mean=(0.3051,), std=(0.3758,)
    )

    def read(self, split: Split) -> ArrayDataset:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        # The first 1,437 of a fixed shuffle are for training, the others for the test.
        order = fixed_permutation(len(labels), "digits")
        chosen = order[:DIGITS_TRAIN] if split == "train" else order[DIGITS_TRAIN:]
        pixels = images.reshape(-1, 1, 8, 8).astype(np.uint8)
        return ArrayDataset(pixels[chosen], labels[chosen].astype(np.int64), self.known)


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Mnist(DataConfig):
    """MNIST; `root` holds the idx files, plain or gzipped, or the parquet files of the hub."""

    name: ClassVar[str] = "mnist"
    known: ClassVar[DataInfo] = DataInfo(
        "mnist", Grid(255), (1, 28, 28), tuple("0123456789"), mean=(0.1307,), std=(0.3081,)
    )

    def read(self, split: Split) -> ArrayDataset:
        path = existing(self.root, self.name)
        if files := find_parquet(path, self.name, split):
            return published(files, self.known, "label", split)
        # Otherwise the authors' idx files, in the root or in one folder below it.
        names = [f"{MNIST_PREFIX[split]}-{content}-ubyte" for content in ("images-idx3", "labels-idx1")]
        folder = only_place(path, self.name, lambda place: _either(place, names[0]) is not None)
        found = [_either(folder, name) if folder else None for name in names]
        if found[0] is None or found[1] is None:
            missing = names[found.index(None)]
            raise DataError(
                f"{path} has no {missing}, plain or with .gz, and no {split}-*.parquet; check the path or "
                f"download {self.name} again."
            )
        images, labels = read_idx(found[0], 3)[:, None], read_idx(found[1], 1)
        return ArrayDataset(images, labels.astype(np.int64), self.known)


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class FashionMnist(Mnist):
    """Fashion-MNIST; `root` as for MNIST."""

    name: ClassVar[str] = "fashion-mnist"
    known: ClassVar[DataInfo] = DataInfo(
        "fashion-mnist", Grid(255), (1, 28, 28), CLOTHES, mean=(0.2860,), std=(0.3530,)
    )


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Cifar10(DataConfig):
    """CIFAR-10; `root` holds the hub's parquet files, or the authors' archive for Python, unpacked or not."""

    name: ClassVar[str] = "cifar10"
    known: ClassVar[DataInfo] = DataInfo(
        "cifar10",
        Grid(255),
        (3, 32, 32),
        tuple(CIFAR10_CLASSES.split()),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
    )
    augmented: ClassVar[bool] = True

    archive: ClassVar[str] = "cifar-10-python.tar.gz"
    batches: ClassVar[dict[Split, tuple[str, ...]]] = {
        "train": tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test": ("test_batch",),
    }
    """The batches of a split, in their order."""
    labels: ClassVar[tuple[str, str]] = ("labels", "label")
    """Name of the labels in a batch and in a parquet file."""

    def read(self, split: Split) -> ArrayDataset:
        path = existing(self.root, self.name)
        if files := find_parquet(path, self.name, split):
            return published(files, self.known, self.labels[1], split)
        # Otherwise the authors' batches, unpacked or in their archive.
        names = self.batches[split]
        if folder := only_place(path, self.name, lambda place: (place / names[0]).is_file()):
            batches = {name: folder / name for name in names if (folder / name).is_file()}
            contents = {name: read_unpacked(file, "batch of images") for name, file in batches.items()}
        elif folder := only_place(path, self.name, lambda place: (place / self.archive).is_file()):
            folder /= self.archive
            contents = unpack(folder, names)
        elif path.name == self.archive:
            folder, contents = path, unpack(path, names)
        else:
            raise DataError(
                f"{path} has none of the files of {self.name} ({split}): {split}-*.parquet, {names[0]} or "
                f"{self.archive}; check the path or download it again."
            )
        if missing := [name for name in names if name not in contents]:
            raise DataError(f"{folder} has no file {missing[0]}; fetch the data set again.")
        parts = [self._parse(contents[name], folder / name) for name in names]
        images, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        return ArrayDataset(images, labels, self.known)

    def _parse(self, data: bytes, path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Returns images and labels of a batch."""
        # A batch is a pickle, which is a program. Only the authors' own, known by checksums, are run.
        check_published(data, path)
        batch = pickle.loads(data, encoding="bytes")
        return batch[b"data"].reshape(-1, 3, 32, 32), np.array(batch[self.labels[0].encode()], np.int64)


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Cifar100(Cifar10):
    """CIFAR-100 with its fine labels; `root` as for CIFAR-10."""

    name: ClassVar[str] = "cifar100"
    known: ClassVar[DataInfo] = DataInfo(
        "cifar100",
        Grid(255),
        (3, 32, 32),
        tuple(CIFAR100_CLASSES.split()),
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    )
    archive: ClassVar[str] = "cifar-100-python.tar.gz"
    batches: ClassVar[dict[Split, tuple[str, ...]]] = {"train": ("train",), "test": ("test",)}
    labels: ClassVar[tuple[str, str]] = ("fine_labels", "fine_label")


def unpack(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Returns the contents of the named files in one of the authors' archives."""
    # An archive with the published checksum holds no links, bombs or headers that never end.
    packed = path.read_bytes()
    check_published(packed, path)
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        members = {Path(member.name).name: member for member in archive}
        return {name: archive.extractfile(members[name]).read() for name in names if name in members}  # type: ignore[union-attr]


def check_published(data: bytes, path: Path) -> None:
    """Raises DataError unless a file is the one that its authors published under this name."""
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != CHECKSUMS[path.name]:
        raise DataError(
            f"{path} does not have the published checksum, so it is not opened; download it again, or save "
            "your own images as .npz or .parquet."
        )


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Returns an array of unsigned bytes; the file must be exactly as long as its header says."""
    # Two zeros, 8 for unsigned bytes, the number of dimensions, then each of them as a big-endian integer.
    data = read_unpacked(path, "idx file")
    header = 4 + 4 * dimensions
    if data[:4] != bytes([0, 0, 8, dimensions]) or len(data) < header:
        what = f"idx file of bytes with {dimensions} dimension(s)"
        raise damaged(path, what, f"it begins with {data[:4].hex() or 'nothing'}")
    # The shape, then exactly as many bytes as it has elements.
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    if len(data) != header + math.prod(shape):
        sizes = f"{len(data)} bytes instead of {header + math.prod(shape)}"
        raise damaged(path, "idx file", f"it has {sizes} for the shape {shape}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _either(folder: Path, name: str) -> Path | None:
    """Returns the file of that name, plain or gzipped; None if there is neither."""
    files = (folder / name, folder / f"{name}.gz")
    return next((file for file in files if file.is_file()), None)
