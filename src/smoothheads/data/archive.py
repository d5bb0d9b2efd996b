"""Files in a folder, in a tar archive or compressed. They are read to the end, where the checksums are.

Archives are never extracted to disk. What a small file may unpack to is limited.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from smoothheads.data.check import damaged
from smoothheads.errors import DataError

MAX_BYTES = 1 << 30  # unpacked, of one file: five times the largest data set that is read this way
CHUNK = 1 << 20
OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}


def read_files(source: Path, names: Sequence[str]) -> list[bytes]:
    """The named files' contents, in that order; inside an archive the folder does not matter."""
    held = _from_folder(source, names) if source.is_dir() else _from_tar(source, names)
    missing = [name for name in names if name not in held]
    if missing:
        raise DataError(f"the file {missing[0]} in {source}", "none", "fetch the data set again")
    return [held[name] for name in names]


def read_whole(path: Path, what: str) -> bytes:
    """The content of a file, unpacked if it is compressed; `what` it should be is for the message."""
    with _reading(path, what) as file:
        return file.read(MAX_BYTES + 1)


class _Limited:
    """A file that raises DataError once more than MAX_BYTES have come out of it."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path, self.left = file, path, MAX_BYTES

    def read(self, size: int) -> bytes:
        parts = []
        while size > 0 and (part := self.file.read(min(size, CHUNK))):
            size, self.left = size - len(part), self.left - len(part)
            if self.left < 0:
                raise too_large(self.path, f"more than {MAX_BYTES} bytes")
            parts.append(part)
        return b"".join(parts)

    def drain(self) -> None:
        while self.read(CHUNK):
            pass


@contextmanager
def _reading(path: Path, what: str) -> Iterator[_Limited]:
    """The unpacked bytes; when the block ends, the rest was read and its checksum compared."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
            file.seek(0)
            opener = next((opener for magic, opener in OPENERS.items() if start.startswith(magic)), None)
            limited = _Limited(opener(file) if opener else file, path)
            yield limited
            limited.drain()
    except DataError:
        raise
    except Exception as error:  # the readers of damaged archives raise whatever they stumble over
        raise damaged(path, what, error) from error


def _from_folder(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    try:
        return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    except OSError as error:
        raise damaged(folder, "folder of readable files", error) from error


def _from_tar(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    held: dict[str, bytes] = {}
    with (
        _reading(path, "tar archive") as file,
        tarfile.open(fileobj=cast(IO[bytes], file), mode="r|") as archive,
    ):
        for member in archive:
            if member.size > MAX_BYTES:  # to pass over it tarfile would read on for ever at the end
                raise too_large(path, f"{member.size} bytes of {member.name}")
            name = member.name.rpartition("/")[2]
            if name in names and member.isreg() and not member.issparse():
                content = archive.extractfile(member)
                held[name] = content.read() if content else b""
                if len(held[name]) != member.size:
                    raise damaged(path, "tar archive", f"a truncated {name}")
    return held


def too_large(path: Path, got: str) -> DataError:
    return DataError(f"at most {MAX_BYTES >> 20} MiB unpacked from {path}", got, "use an unpacked data set")
