"""Checks and messages that every reader of data shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothheads import hub
from smoothheads.errors import DataError

MISTAKEN_PATH = "check the path, or download the data set again"


def existing(root: str | Path | None, name: str) -> Path:
    """The data set's root, which must exist."""
    if root is None:
        raise DataError(
            f"a root for the data set {name!r}",
            "none",
            "say where it lies: --root FOLDER",
        )
    if hub.is_address(root):
        return hub.local(root, "dataset", ("*.parquet",))
    path = Path(root).expanduser()
    if not path.exists():
        raise DataError(f"the data set {name!r} at {path}", "no such file or folder", MISTAKEN_PATH)
    return path


def damaged(path: Path | str, what: str, got: str | BaseException) -> DataError:
    """An error for a file that is there but is not a whole `what`."""
    return DataError(f"a whole {what} at {path}", str(got) or type(got).__name__, "fetch the file again")


def labels_within(labels: NDArray[np.int64], classes: int, where: str) -> None:
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if outside.size:
        first = int(outside[0])
        raise DataError(
            f"labels 0..{classes - 1} in {where}",
            f"{int(labels[first])} at position {first} ({outside.size} outside in all)",
            "correct the labels or name all classes",
        )


def only_place(root: Path, name: str, holds: Callable[[Path], bool]) -> Path | None:
    """The folder that holds the data: the root itself, else the only one below it that does, else none."""
    if not root.is_dir() or holds(root):
        return root if root.is_dir() else None
    below = sorted(path for path in root.iterdir() if path.is_dir() and holds(path))
    if len(below) > 1:
        folders = ", ".join(path.name for path in below)
        raise DataError(f"one folder with {name!r} below {root}", folders, "name one of them as the root")
    return below[0] if below else None
