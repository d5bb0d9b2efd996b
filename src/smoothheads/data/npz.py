"""A user's own data in one .npz file: train_images, train_labels, test_images, test_labels.

The names x_train, y_train, x_test, y_test are known too. Optional keys: class_names (strings) and max_value
(default 255). Images as `from_arrays` takes them.
"""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.archive import MAX_BYTES, too_large
from smoothheads.data.arrays import ArrayDataset
from smoothheads.data.base import Split
from smoothheads.data.check import damaged, existing
from smoothheads.data.coerce import from_arrays
from smoothheads.data.config import DATASETS, DataConfig
from smoothheads.errors import DataError

Members = dict[str, NDArray[Any]]
NAMES = {
    "train_images": ("x_train", "X_train"),
    "train_labels": ("y_train", "Y_train"),
    "test_images": ("x_test", "X_test"),
    "test_labels": ("y_test", "Y_test"),
    "class_names": (),
    "max_value": ("q",),  # what version 1 called it
}


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Npz(DataConfig):
    """Your own arrays in one .npz file; `root` is the file."""

    name: ClassVar[str] = "npz"

    def read(self, split: Split) -> ArrayDataset:
        """Classes, mean and deviation come from the training images; a file without them can be certified but
        not trained on, and has mean 0 and deviation 1: test images teach nothing."""
        path = existing(self.root, self.name)
        held = read_members(path)
        members = {key: held[name] for key, names in NAMES.items() for name in (key, *names) if name in held}
        if split == "train":
            return _split(members, "train", path)
        if "train_images" not in members:
            test = _split(members, "test", path)
            return replace(test, info=test.info.unnormalized())
        info = _split(members, "train", path).info
        return replace(_split(members, "test", path, info.class_names), info=info)


def _split(
    members: Members, split: Split, path: Path, classes: tuple[str, ...] | None = None
) -> ArrayDataset:
    for key in (f"{split}_images", f"{split}_labels"):
        if key not in members:
            held = ", ".join(sorted(members)) or "none of the known keys"
            raise DataError(f"the key {key!r} in {path}", held, "save it with numpy.savez")
    names = members.get("class_names")
    if names is not None and (names.dtype.kind != "U" or names.ndim != 1):
        raise DataError(f"class_names as a list of strings in {path}", f"{names.dtype}", "save strings")
    return from_arrays(
        members[f"{split}_images"],
        members[f"{split}_labels"],
        classes=classes if names is None else _strings(names, path),
        max_value=_max_value(members, path),
        name=path.stem,
    )


def _strings(names: NDArray[Any], path: Path) -> list[str]:
    try:
        return [str(name) for name in names]
    except (ValueError, SystemError) as error:  # numbers that are no characters
        raise damaged(path, "list of class_names", error) from None


def _max_value(members: Members, path: Path) -> int:
    value = members.get("max_value", np.array(255))
    if value.dtype.kind not in "ui" or value.size != 1:
        got = f"{value.dtype} of shape {value.shape}"
        raise DataError(f"max_value as one integer in {path}", got, "save max_value=255, say")
    return int(value.item())


def read_members(path: Path) -> Members:
    """All arrays of the file by their names. Objects are refused: reading them would run what it says."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            return {name.removesuffix(".npy"): _member(archive, name, path) for name in names}
    except DataError:
        raise
    except Exception as error:  # a damaged archive or header can fail in any way; the message names it
        raise damaged(path, ".npz file of plain arrays", error) from error


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    """One array. The member is read to its end, so that zipfile compares the checksum."""
    size = archive.getinfo(name).file_size
    if size > MAX_BYTES:
        raise too_large(path, f"{size} bytes of {name}")
    data = archive.read(name)
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(f"objects in {name}")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"{len(data) - file.tell()} bytes for the shape {shape} of {name}")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if fortran else "C")
