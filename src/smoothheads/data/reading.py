"""How data sets find and read their files: folders, tar archives, compressed files, all within the budget.

Archives are never extracted to disk. Compressed files are read to their end, where the checksums are.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from smoothheads import hub
from smoothheads.errors import DataError
from smoothheads.limits import check_unpacked

CHUNK = 1 << 20
OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
TAR_BLOCK = 512


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
    if not root.is_dir() or holds(root):
        return root if root.is_dir() else None
    below = sorted(path for path in root.iterdir() if path.is_dir() and holds(path))
    if len(below) > 1:
        folders = ", ".join(path.name for path in below)
        raise DataError(f"Several folders in {root} hold {name!r} ({folders}); name one of them as the root.")
    return below[0] if below else None


def check_labels(labels: NDArray[np.int64], classes: int, where: str) -> None:
    """Raises DataError unless all labels are in 0..classes - 1; `where` names the data set."""
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if outside.size:
        first = int(outside[0])
        raise DataError(
            f"The label at position {first} of {where} is {int(labels[first])}, and {outside.size} in all "
            f"are outside 0..{classes - 1}; correct the labels or name all classes."
        )


def read_file(path: Path, what: str) -> bytes:
    """Returns the content of a file, unpacked if it is compressed; `what` it should be is for the message."""
    with _reading(path, what) as file:
        return file.read_all()


def read_files(source: Path, names: Sequence[str]) -> list[bytes]:
    """Returns the contents of the named files of a folder or a tar archive, in the order of the names.

    Inside an archive the folder of a file does not matter.
    """
    contents: dict[str, bytes] = {}
    if source.is_dir():
        try:
            contents = {name: (source / name).read_bytes() for name in names if (source / name).is_file()}
        except OSError as error:
            raise damaged(source, "folder of readable files", error) from error
    else:
        with _reading(source, "tar archive") as file:
            if not file.packed:
                raise damaged(source, "tar archive", "it is empty")
            contents = dict(_tar_members(file, names))
    missing = [name for name in names if name not in contents]
    if missing:
        raise DataError(f"{source} has no file {missing[0]}; fetch the data set again.")
    return [contents[name] for name in names]


class _Unpacked:
    """The unpacked bytes of a file; raises DataError when they exceed the budget."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path = file, path
        self.packed, self.count = path.stat().st_size, 0

    def read(self, size: int) -> bytes:
        parts = []
        while size > 0 and (part := self.file.read(min(size, CHUNK))):
            size, self.count = size - len(part), self.count + len(part)
            check_unpacked(self.count, self.packed, self.path)
            parts.append(part)
        return b"".join(parts)

    def read_all(self) -> bytes:
        return b"".join(iter(lambda: self.read(CHUNK), b""))

    def skip(self, size: int) -> None:
        while size > 0:
            part = self.read(min(size, CHUNK))
            if not part:
                raise EOFError("it ends in the middle of a member")
            size -= len(part)


@contextmanager
def _reading(path: Path, what: str) -> Iterator[_Unpacked]:
    """Yields the unpacked bytes; afterwards the rest is read, so that its checksum is compared."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
            file.seek(0)
            opener = next((opener for magic, opener in OPENERS.items() if start.startswith(magic)), None)
            unpacked = _Unpacked(opener(file) if opener else file, path)
            yield unpacked
            while unpacked.read(CHUNK):
                pass
    except DataError:
        raise
    except Exception as error:  # the readers of damaged archives raise whatever they stumble over
        raise damaged(path, what, error) from error


def _tar_members(file: _Unpacked, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yields the plain files of those names.

    Python's tarfile follows links, sparse maps and extended sizes, and a header of 512 bytes can make it
    read forever. The archives of data sets need none of these, so that only plain headers count here: name,
    size in octal digits, checksum, type.
    """
    while (header := file.read(TAR_BLOCK)).strip(b"\0"):
        if len(header) < TAR_BLOCK:
            raise EOFError("a truncated header")
        fields = header[:148] + b" " * 8 + header[156:]
        if int(header[148:156].strip(b" \0") or b"0", 8) != sum(fields):
            raise ValueError("a header with a wrong checksum")
        name = header[:100].rstrip(b"\0").decode("utf-8", "replace").rpartition("/")[2]
        size = int(header[124:136].strip(b" \0") or b"0", 8)
        if size < 0:
            raise ValueError(f"a size of {size} bytes")
        content_size = 0
        if header[156:157] in b"0\0" and name in names:
            content = file.read(size)
            content_size = len(content)
            if content_size < size:
                raise EOFError(f"a truncated {name}")
            yield name, content
        file.skip(-(-size // TAR_BLOCK) * TAR_BLOCK - content_size)
