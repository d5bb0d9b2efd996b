"""CIFAR-10 and CIFAR-100 from hub-style parquet files, the binary archive or the python archive."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.archive import read_files
from smoothheads.data.arrays import ArrayDataset
from smoothheads.data.base import DataInfo, Split
from smoothheads.data.check import MISTAKEN_PATH, damaged, existing, only_place
from smoothheads.data.config import DATASETS, DataConfig
from smoothheads.data.parquet import find_parquet, published
from smoothheads.data.unpickle import unpickle
from smoothheads.errors import DataError
from smoothheads.types import Grid

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
SIZES: dict[Split, int] = {"train": 50_000, "test": 10_000}

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

Kind = Literal["binary", "python"]
KINDS: tuple[Kind, ...] = ("binary", "python")
Content = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images and labels


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Cifar10(DataConfig):
    """CIFAR-10; `root` holds the hub's parquet files, or one of the authors' archives, unpacked or not."""

    name: ClassVar[str] = "cifar10"
    known: ClassVar[DataInfo] = DataInfo(
        name="cifar10",
        grid=Grid(255),
        shape=SHAPE,
        class_names=tuple(CIFAR10_CLASSES.split()),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
    )
    augmented: ClassVar[bool] = True

    archive: ClassVar[str] = "cifar-10"
    """Name of the archives, up to the kind: <archive>-binary.tar.gz, <archive>-python.tar.gz."""
    files: ClassVar[dict[Split, tuple[str, ...]]] = {
        "train": tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test": ("test_batch",),
    }
    """The batches of a split, in their order; the binary ones end in .bin."""
    label_bytes: ClassVar[int] = 1
    """Bytes before the pixels of a binary record; the last of them is the label."""
    label_key: ClassVar[str] = "labels"
    """Key of the labels in a python batch."""
    label_column: ClassVar[str] = "label"
    """Column of the labels in a parquet file."""

    def read(self, split: Split) -> ArrayDataset:
        path = existing(self.root, self.name)
        if files := find_parquet(path, self.name, split):
            return published(files, self.known, self.label_column, split, SIZES[split])
        source, kind = self._find(path, split)
        names = self._batches(split, kind)
        parse = self._parse_binary if kind == "binary" else self._parse_python
        contents = zip(names, read_files(source, names), strict=True)
        parts = [parse(data, source / name) for name, data in contents]
        images, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        return ArrayDataset(images, labels, self.known)

    def _batches(self, split: Split, kind: Kind) -> list[str]:
        return [f"{name}.bin" if kind == "binary" else name for name in self.files[split]]

    def _find(self, root: Path, split: Split) -> tuple[Path, Kind]:
        """The folder or archive that holds the split; what is unpacked already comes first."""
        for kind in KINDS:
            if folder := only_place(root, self.name, partial(_holds_any, names=self._batches(split, kind))):
                return folder, kind
        for kind in KINDS:
            archive = f"{self.archive}-{kind}.tar.gz"
            if root.is_file() and kind in root.name:
                return root, kind
            if folder := only_place(root, self.name, partial(_holds_any, names=[archive])):
                return folder / archive, kind
        first = ", ".join(self._batches(split, kind)[0] for kind in KINDS)
        expected = f"{self.name} ({split}) at {root}: {split}-*.parquet, {first}"
        expected += f", {self.archive}-binary.tar.gz or -python.tar.gz"
        raise DataError(expected, "none of them", MISTAKEN_PATH)

    def _parse_binary(self, data: bytes, source: Path) -> Content:
        size = self.label_bytes + PIXELS
        if not data or len(data) % size:
            raise damaged(source, f"file of {size}-byte records", f"{len(data)} bytes")
        records = np.frombuffer(data, np.uint8).reshape(-1, size)
        labels = records[:, self.label_bytes - 1].astype(np.int64)
        return records[:, self.label_bytes :].reshape(-1, *SHAPE), labels

    def _parse_python(self, data: bytes, source: Path) -> Content:
        batch = unpickle(data, source)
        images, labels = batch.get("data"), batch.get(self.label_key)
        if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (PIXELS,):
            raise damaged(source, f"batch with 'data' as bytes [N, {PIXELS}]", _describe(images))
        if not isinstance(labels, list) or not all(type(label) is int for label in labels):
            raise damaged(source, f"batch with {self.label_key!r} as integers", _describe(labels))
        if len(labels) != len(images):
            raise damaged(source, f"batch of {len(images)} labels", str(len(labels)))
        return images.reshape(-1, *SHAPE), np.array(labels, np.int64)


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Cifar100(Cifar10):
    """CIFAR-100 with its fine labels; `root` as for CIFAR-10."""

    name: ClassVar[str] = "cifar100"
    known: ClassVar[DataInfo] = DataInfo(
        name="cifar100",
        grid=Grid(255),
        shape=SHAPE,
        class_names=tuple(CIFAR100_CLASSES.split()),
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    )
    archive: ClassVar[str] = "cifar-100"
    files: ClassVar[dict[Split, tuple[str, ...]]] = {"train": ("train",), "test": ("test",)}
    label_bytes: ClassVar[int] = 2
    label_key: ClassVar[str] = "fine_labels"
    label_column: ClassVar[str] = "fine_label"


def _holds_any(folder: Path, names: list[str]) -> bool:
    return any((folder / name).is_file() for name in names)


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return "none" if value is None else type(value).__name__
