"""How data sets find their files, and what they say about damaged ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from smoothheads import hub
from smoothheads.errors import DataError


def damaged(path: Path | str, what: str, reason: str | BaseException) -> DataError:
    """Returns the error for a file that exists but is not a complete `what`."""
    return DataError(
        f"{path} is not a complete {what} ({str(reason) or type(reason).__name__}); fetch the file again."
    )


def existing(root: str | Path | None, name: str) -> Path:
    """Returns the root of the data set `name`, which must exist; `hf://user/name` is fetched first."""
    if root is None:
        raise DataError(f"The data set {name!r} needs to know where its files are; add --root FOLDER.")
    if hub.is_address(root):
        return hub.local(root, "dataset", ("*.parquet",))
    path = Path(root).expanduser()
    if not path.exists():
        raise DataError(f"There is no file or folder {path} for the data set {name!r}; check the path.")
    return path


def only_place(root: Path, name: str, holds: Callable[[Path], bool]) -> Path | None:
    """Returns the folder that holds the data: the root, else the only folder below it that does, else None.

    Args:
        root: the folder that the user named.
        name: the data set, for the message.
        holds: tells whether a folder holds the data.
    """
    # The root itself comes first.
    if not root.is_dir() or holds(root):
        return root if root.is_dir() else None
    # Then the folders below it, of which only one may hold the data.
    below = sorted(path for path in root.iterdir() if path.is_dir() and holds(path))
    if len(below) > 1:
        folders = ", ".join(path.name for path in below)
        raise DataError(f"Several folders in {root} hold {name!r} ({folders}); name one of them as the root.")
    return below[0] if below else None
