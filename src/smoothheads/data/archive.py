"""Files that lie in a folder or in a tar archive. Archives are read, never extracted to disk."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from smoothheads.data.check import damaged
from smoothheads.errors import DataError


def read_files(source: Path, names: Sequence[str]) -> list[bytes]:
    """The named files' contents, in that order; inside an archive the folder does not matter."""
    found = _from_folder(source, names) if source.is_dir() else _from_tar(source, names)
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"the file {missing[0]} in {source}", "none", "fetch the data set again")
    return [found[name] for name in names]


def _from_folder(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    try:
        return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    except OSError as error:
        raise damaged(folder, "folder of readable files", error) from error


def _from_tar(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name in names and (content := archive.extractfile(member) if member.isreg() else None):
                    found[name] = content.read()
                if len(found) == len(names):  # the rest of the archive need not be decompressed
                    break
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise damaged(path, "tar archive", error) from error
    return found
