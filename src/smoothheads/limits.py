"""The budget that every reader of files respects, so that a small file cannot fill the memory or the day.

The numbers are stated in docs/formats.md. Time needs no clock of its own: every reader works in time
proportional to the bytes that it reads and unpacks, and those are bounded here.
"""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import Final

from smoothheads.errors import DataError, SmoothheadsError

MAX_UNPACKED: Final = 4 << 30
"""Bytes that one file, or the files of one data set, may take in memory."""
MAX_RATIO: Final = 100
"""How many times its own size a file may unpack to; photographs and weights stay below 20."""
SMALL: Final = 64 << 20
"""Bytes that may be unpacked from however small a file: a drawing of one colour packs very well."""
MAX_PIXELS: Final = 64_000_000
"""Pixels of one picture, about 200 MB when decoded."""
MAX_SCANS: Final = 100
"""Scans of one JPEG; progressive ones have about ten, and each costs a pass over the picture."""
MAX_SCANNED: Final = 10 * MAX_PIXELS
"""Scans of one JPEG times its pixels."""
MAX_CLASSES: Final = 1_000_000
"""Classes of a data set; the largest in use have about 22,000."""


def unpacked_limit(packed: int) -> int:
    """Returns how many bytes a file of `packed` bytes may unpack to."""
    return min(MAX_UNPACKED, max(SMALL, MAX_RATIO * packed))


def check_unpacked(
    size: int, packed: int, path: Path | str, error: type[SmoothheadsError] = DataError
) -> None:
    """Raises `error` if a file of `packed` bytes unpacks to more than the budget allows.

    Args:
        size: the bytes that it unpacks to, as its directory announces them or as they were counted.
        packed: the bytes of the file itself.
        path: the file, for the message.
        error: the kind of error that the caller raises.
    """
    limit = unpacked_limit(packed)
    if size > limit:
        raise error(
            f"{path} ({packed:,} bytes) unpacks to more than the {limit:,} bytes that a file of its size may "
            "fill; if you trust it, unpack it yourself and pass the unpacked files."
        )


def read_unpacked(path: Path, what: str, error: type[SmoothheadsError] = DataError) -> bytes:
    """Returns the content of a file, unpacked within the budget if it is gzipped.

    Args:
        path: The file.
        what: What it should be, for messages.
        error: The kind of error that the caller raises.
    """
    try:
        data = path.read_bytes()
        if not data.startswith(b"\x1f\x8b"):
            return data
        # Reading to the end compares the checksum that stands there.
        with gzip.open(io.BytesIO(data)) as file:
            unpacked = file.read(unpacked_limit(len(data)) + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise error(f"{path} is not a complete {what} ({problem}); fetch the file again.") from problem
    except OSError as problem:
        raise error(f"Cannot read {path} as a {what}: {problem.strerror}.") from problem
    check_unpacked(len(unpacked), len(data), path, error)
    return unpacked
