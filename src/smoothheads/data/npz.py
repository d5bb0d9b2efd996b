"""A user's own data in one .npz file: train_images, train_labels, test_images, test_labels.

Optional keys: class_names (strings) and q (default 255). Images as `from_arrays` takes them.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.arrays import ArrayDataset, from_arrays
from smoothheads.data.base import Split
from smoothheads.data.check import damaged, existing
from smoothheads.errors import DataError

Members = dict[str, NDArray[Any]]
KEYS = ("train_images", "train_labels", "test_images", "test_labels", "class_names", "q")


def npz(root: str | Path | None, split: Split) -> ArrayDataset:
    """One split of the file. Classes, mean and deviation come from the training images; a file without them
    can be certified but not trained on, and has mean 0 and deviation 1: test images teach nothing."""
    path = existing(root, "npz")
    members = _read(path)
    if split == "train":
        return _split(members, "train", path)
    test = _split(members, "test", path)
    if "train_images" in members:
        return replace(test, info=_split(members, "train", path).info)
    channels = test.info.shape[0]
    return replace(test, info=replace(test.info, mean=(0.0,) * channels, std=(1.0,) * channels))


def _split(members: Members, split: Split, path: Path) -> ArrayDataset:
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
        classes=None if names is None else [str(name) for name in names],
        q=_grid(members, path),
        name=path.stem,
    )


def _grid(members: Members, path: Path) -> int:
    q = members.get("q", np.array(255))
    if q.dtype.kind not in "ui" or q.size != 1:
        raise DataError(f"q as one integer in {path}", f"{q.dtype} of shape {q.shape}", "save q=255, say")
    return int(q.item())


def _read(path: Path) -> Members:
    """Objects are refused: reading them would run what the file says."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in KEYS if key in file}
    except (
        OSError,
        ValueError,
        EOFError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise damaged(path, ".npz file of plain arrays", error) from error
