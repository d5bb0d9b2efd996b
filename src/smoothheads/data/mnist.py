"""MNIST and Fashion-MNIST from their idx files, plain or gzipped, or from parquet files."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.archive import read_whole
from smoothheads.data.arrays import ArrayDataset
from smoothheads.data.base import DataInfo, Split
from smoothheads.data.check import MISTAKEN_PATH, damaged, existing, only_place
from smoothheads.data.config import DATASETS, DataConfig
from smoothheads.data.parquet import find_parquet, published
from smoothheads.errors import DataError
from smoothheads.types import Grid

SIZES: dict[Split, int] = {"train": 60_000, "test": 10_000}
PREFIX: dict[Split, str] = {"train": "train", "test": "t10k"}

MNIST = DataInfo(
    name="mnist",
    grid=Grid(255),
    shape=(1, 28, 28),
    class_names=tuple("0123456789"),
    mean=(0.1307,),
    std=(0.3081,),
)

FASHION_MNIST = DataInfo(
    name="fashion-mnist",
    grid=Grid(255),
    shape=(1, 28, 28),
    class_names=(
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
    ),
    mean=(0.2860,),
    std=(0.3530,),
)


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Mnist(DataConfig):
    """MNIST; `root` holds the idx files, plain or gzipped, or the parquet files of the hub."""

    name: ClassVar[str] = "mnist"
    known: ClassVar[DataInfo] = MNIST

    def read(self, split: Split) -> ArrayDataset:
        path = existing(self.root, self.name)
        if files := find_parquet(path, self.name, split):
            return published(files, self.known, "label", split, SIZES[split])
        folder = only_place(path, self.name, lambda place: _file(place, split, "images", 3) is not None)
        images_file = _file(folder, split, "images", 3) if folder else None
        labels_file = _file(folder, split, "labels", 1) if folder else None
        if images_file is None or labels_file is None:
            lacking = "images-idx3" if images_file is None else "labels-idx1"
            expected = f"{PREFIX[split]}-{lacking}-ubyte, its .gz or {split}-*.parquet at {path}"
            raise DataError(expected, "no such file", MISTAKEN_PATH)
        images, labels = read_idx(images_file, 3)[:, None], read_idx(labels_file, 1)
        return ArrayDataset(images, labels.astype(np.int64), self.known)


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class FashionMnist(Mnist):
    """Fashion-MNIST; `root` as for MNIST."""

    name: ClassVar[str] = "fashion-mnist"
    known: ClassVar[DataInfo] = FASHION_MNIST


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An array of unsigned bytes; the file must be exactly as long as its header says."""
    data = read_whole(path, "idx file")
    header = 4 + 4 * dimensions
    if data[:4] != bytes([0, 0, 8, dimensions]) or len(data) < header:
        expected = f"idx file of bytes with {dimensions} dimension(s)"
        raise damaged(path, expected, f"the magic number {data[:4].hex() or 'nothing'}")
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    if len(data) != header + math.prod(shape):
        sizes = f"{len(data)} bytes instead of {header + math.prod(shape)}"
        raise damaged(path, "idx file", f"{sizes} for the shape {shape}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _file(folder: Path, split: Split, what: str, dimensions: int) -> Path | None:
    """The file under one of the names it goes by; the plain one comes first."""
    stem, ending = f"{PREFIX[split]}-{what}", f"idx{dimensions}-ubyte"
    names = (f"{stem}{mark}{ending}{packed}" for packed in ("", ".gz") for mark in "-.")
    return next((folder / name for name in names if (folder / name).is_file()), None)
