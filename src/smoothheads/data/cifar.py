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
from smoothheads.data.config import DataConfig
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


@dataclass(frozen=True, slots=True)
class Layout:
    """How one of the two sets is stored. CIFAR-100 is read with its fine labels."""

    info: DataInfo
    archive: str
    """Name of the archives, up to the kind: <archive>-binary.tar.gz, <archive>-python.tar.gz."""
    files: dict[Split, tuple[str, ...]]
    """The batches of a split, in their order; the binary ones end in .bin."""
    label_bytes: int
    """Bytes before the pixels of a binary record; the last of them is the label."""
    label_key: str
    """Key of the labels in a python batch."""
    label_column: str
    """Column of the labels in a parquet file."""

    def batches(self, split: Split, kind: Kind) -> list[str]:
        return [f"{name}.bin" if kind == "binary" else name for name in self.files[split]]


CIFAR10 = Layout(
    info=DataInfo(
        name="cifar10",
        grid=Grid(255),
        shape=SHAPE,
        class_names=tuple(CIFAR10_CLASSES.split()),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
    ),
    archive="cifar-10",
    files={"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    label_bytes=1,
    label_key="labels",
    label_column="label",
)

CIFAR100 = Layout(
    info=DataInfo(
        name="cifar100",
        grid=Grid(255),
        shape=SHAPE,
        class_names=tuple(CIFAR100_CLASSES.split()),
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    ),
    archive="cifar-100",
    files={"train": ("train",), "test": ("test",)},
    label_bytes=2,
    label_key="fine_labels",
    label_column="fine_label",
)


@dataclass(frozen=True, kw_only=True)
class Cifar10(DataConfig):
    """CIFAR-10; `root` holds the hub's parquet files, or one of the authors' archives, unpacked or not."""

    name: ClassVar[str] = "cifar10"
    layout: ClassVar[Layout] = CIFAR10
    known: ClassVar[DataInfo] = CIFAR10.info
    augmented: ClassVar[bool] = True

    def read(self, split: Split) -> ArrayDataset:
        path, layout = existing(self.root, self.name), self.layout
        if files := find_parquet(path, self.name, split):
            return published(files, self.known, layout.label_column, split, SIZES[split])
        source, kind = _find(layout, path, split)
        names = layout.batches(split, kind)
        parse = _parse_binary if kind == "binary" else _parse_python
        contents = zip(names, read_files(source, names), strict=True)
        parts = [parse(layout, data, source / name) for name, data in contents]
        images, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        return ArrayDataset(images, labels, self.known)


@dataclass(frozen=True, kw_only=True)
class Cifar100(Cifar10):
    """CIFAR-100 with its fine labels; `root` as for CIFAR-10."""

    name: ClassVar[str] = "cifar100"
    layout: ClassVar[Layout] = CIFAR100
    known: ClassVar[DataInfo] = CIFAR100.info


def _find(layout: Layout, root: Path, split: Split) -> tuple[Path, Kind]:
    """The folder or archive that holds the split; what is unpacked already comes first."""
    name = layout.info.name
    for kind in KINDS:
        if folder := only_place(root, name, partial(_holds_any, names=layout.batches(split, kind))):
            return folder, kind
    for kind in KINDS:
        archive = f"{layout.archive}-{kind}.tar.gz"
        if root.is_file() and kind in root.name:
            return root, kind
        if folder := only_place(root, name, partial(_holds_any, names=[archive])):
            return folder / archive, kind
    expected = f"{name} ({split}) at {root}: {split}-*.parquet, {layout.batches(split, 'binary')[0]}"
    expected += f", {layout.batches(split, 'python')[0]}, {layout.archive}-binary.tar.gz or -python.tar.gz"
    raise DataError(expected, "none of them", MISTAKEN_PATH)


def _holds_any(folder: Path, names: list[str]) -> bool:
    return any((folder / name).is_file() for name in names)


def _parse_binary(layout: Layout, data: bytes, source: Path) -> Content:
    size = layout.label_bytes + PIXELS
    if not data or len(data) % size:
        raise damaged(source, f"file of {size}-byte records", f"{len(data)} bytes")
    records = np.frombuffer(data, np.uint8).reshape(-1, size)
    labels = records[:, layout.label_bytes - 1].astype(np.int64)
    return records[:, layout.label_bytes :].reshape(-1, *SHAPE), labels


def _parse_python(layout: Layout, data: bytes, source: Path) -> Content:
    batch = unpickle(data, source)
    images, labels = batch.get("data"), batch.get(layout.label_key)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (PIXELS,):
        raise damaged(source, f"batch with 'data' as bytes [N, {PIXELS}]", _describe(images))
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise damaged(source, f"batch with {layout.label_key!r} as integers", _describe(labels))
    if len(labels) != len(images):
        raise damaged(source, f"batch of {len(images)} labels", str(len(labels)))
    return images.reshape(-1, *SHAPE), np.array(labels, np.int64)


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return "none" if value is None else type(value).__name__
