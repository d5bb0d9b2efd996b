"""A user's own data in one .npz file: train_images, train_labels, test_images, test_labels.

The names x_train, y_train, x_test and y_test are accepted too. Optional keys are class_names (strings) and
max_value (by default 255). Images have the forms that `from_arrays` takes.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.arrays import ArrayDataset
from smoothheads.data.base import DATASETS, DataConfig, Split, damaged, existing
from smoothheads.data.coerce import from_arrays
from smoothheads.errors import DataError
from smoothheads.limits import check_unpacked

Members = dict[str, NDArray[Any]]
ALIASES = {
    "x_train": "train_images",
    "y_train": "train_labels",
    "x_test": "test_images",
    "y_test": "test_labels",
}


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Npz(DataConfig):
    """Your own arrays in one .npz file; `root` is the file."""

    name: ClassVar[str] = "npz"

    def read(self, split: Split) -> ArrayDataset:
        """Returns a split, with classes, mean and standard deviation of the training images.

        A file without training images can be certified but not trained on; it has mean 0 and standard
        deviation 1, because test images choose nothing.
        """
        path = existing(self.root, self.name)
        members = {ALIASES.get(name, name): array for name, array in read_members(path).items()}
        # The training images give the classes, mean and standard deviation of both splits.
        if split == "train":
            return _split(members, "train", path)
        if "train_images" not in members:
            test = _split(members, "test", path)
            return replace(test, info=test.info.unnormalized())
        info = _split(members, "train", path).info
        return replace(_split(members, "test", path, info.class_names), info=info)


def read_members(path: Path) -> Members:
    """Returns all arrays of the file by their names. Objects are refused: reading them would run code."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            # zipfile reads no more of a member than the directory says, so that the sum can be trusted.
            size = sum(archive.getinfo(name).file_size for name in names)
            check_unpacked(size, path.stat().st_size, path)
            return {name.removesuffix(".npy"): _member(archive, name) for name in names}
    except DataError:
        raise
    except Exception as error:  # a damaged archive or header can fail in any way; the message names it
        raise damaged(path, ".npz file of plain arrays", error) from error


def _member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Returns one array. The member is read to its end, so that zipfile compares the checksum."""
    file = io.BytesIO(archive.read(name))
    array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    # Elements without bytes, and bytes without elements: the header does not describe this member.
    if array.dtype.itemsize == 0 or file.read(1):
        raise ValueError(f"{name} does not have the size of its shape")
    if array.dtype.kind == "U":
        array.tolist()  # fails for numbers that are no characters
    return array


def _split(
    members: Members, split: Split, path: Path, classes: tuple[str, ...] | None = None
) -> ArrayDataset:
    """Returns one split; `classes` are the names that the training images gave, if there are any."""
    for key in (f"{split}_images", f"{split}_labels"):
        if key not in members:
            held = ", ".join(sorted(members)) or "no arrays"
            raise DataError(f"{path} has no {key} (it holds {held}); save it with numpy.savez.")
    # Optional members: the names of the classes, and the largest grid integer q.
    names = members.get("class_names")
    max_value = members.get("max_value", np.array(255))
    if names is not None and (names.dtype.kind != "U" or names.ndim != 1):
        raise DataError(f"class_names in {path} must be a list of strings, not {names.dtype}.")
    if max_value.dtype.kind not in "ui" or max_value.size != 1:
        raise DataError(f"max_value in {path} must be one integer, for example 255, not {max_value.dtype}.")
    return from_arrays(
        members[f"{split}_images"],
        members[f"{split}_labels"],
        classes=classes if names is None else names.tolist(),
        max_value=int(max_value.item()),
        name=path.stem,
    )
