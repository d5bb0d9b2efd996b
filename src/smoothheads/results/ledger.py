"""The ledger of a certification run: a folder with `ledger.tsv`, a durable line per image, and its manifest.

A run that is killed at any moment and started again leaves the same bytes as one that was never interrupted,
the time column apart: rows stand in the order of the manifest's `indices`, and a torn last line is dropped.
Checksums of the manifest and of all rows so far stand in every row, and each row is re-derived from its votes
when it is read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from smoothheads.config import load_json
from smoothheads.errors import LedgerError
from smoothheads.files import (
    append,
    check_held,
    exclusive,
    has_stamp,
    reserve,
    storage,
    write_atomic,
    write_json,
)
from smoothheads.results.manifest import FILE, KIND, Manifest, digest, read_manifest, require_same
from smoothheads.results.metrics import image_differences
from smoothheads.results.row import (
    CHECKS,
    HEADER,
    RowError,
    chain_of,
    from_line,
    seal,
    seal_error,
    to_line,
    verify_row,
)
from smoothheads.types import Certified

TABLE = "ledger.tsv"


class Ledger:
    """An open ledger; made by `Ledger.open`.

    It remembers which images it has, not their rows: a long run needs no more memory than a short one.
    """

    def __init__(self, path: Path, file: FileIO, contents: LedgerContents) -> None:
        self._path, self._file = path, file
        self._manifest, self._chain = contents.manifest, contents.chain
        self._done = {row.index for row in contents.rows}

    @classmethod
    @contextmanager
    def open(
        cls, folder: Path | str, manifest: Manifest, *, fresh: bool = False, ignore: Collection[str] = ()
    ) -> Iterator[Ledger]:
        """Starts a ledger, or continues one.

        Raises StorageError where another process holds the folder or something else lies in it, LedgerError
        where its rows were made with other settings, or are damaged.

        Args:
            fresh: Whether rows that are there are thrown away.
            ignore: Names that may lie in a new ledger's folder.
        """
        folder = Path(folder)
        path = folder / TABLE
        reserve_ledger(folder, ignore)
        # The lock is held as long as the ledger is open, so that two processes never mix their rows.
        with exclusive(folder):
            if fresh:
                with storage(path):
                    path.unlink(missing_ok=True)
            contents = _resume(folder, manifest)
            with storage(path):
                file = path.open("ab", buffering=0)
            with file:
                yield cls(path, file, contents)

    @property
    def done(self) -> set[int]:
        """The indices of the images that have a row."""
        return set(self._done)

    def __len__(self) -> int:
        return len(self._done)

    def append(self, row: Certified) -> None:
        """Writes the row to the disk before it returns; if it raises, the file is as it was."""
        # Every image once, in the manifest's order, with the votes that the manifest announces.
        check_held(self._path.parent)
        if row.index in self._done:
            raise LedgerError(f"Image {row.index} is in the ledger already; skip the images in `done`.")
        if (expected := self._manifest.expected) is not None:
            following = expected[len(self) : len(self) + 1]
            if (row.index,) != following:
                due = f"image {following[0]} is next" if following else "the ledger is complete"
                raise LedgerError(f"Image {row.index} is out of order: {due} by the manifest's indices.")
        stated = (self._manifest.aggregations, self._manifest.classes)
        for votes in (row.selection, row.votes):
            if (own := (votes.aggregations, votes.counts.shape[1])) != stated:
                raise LedgerError(
                    f"Image {row.index} has votes of {own[0]} over {own[1]} classes; the manifest states "
                    f"{stated[0]} over {stated[1]}."
                )
        # The checksums chain this row to all rows before it.
        sealed = seal(to_line(row), self._chain)
        append(self._file, f"{sealed}\n".encode(), self._path)
        self._chain = chain_of(sealed)
        self._done.add(row.index)


class LedgerContents(NamedTuple):
    manifest: Manifest
    rows: list[Certified]
    lines: list[str]
    """The rows as they stand in the file, without newlines and checksums."""
    chain: str
    """The last checksum of the last row; that of the manifest where there is no row."""
    errors: list[RowError]
    """Rows whose checksums are wrong; filled only if damaged rows are let through."""
    size: int
    """Bytes of header and complete rows."""


def reserve_ledger(folder: Path, ignore: Collection[str] = ()) -> None:
    """Raises StorageError unless a ledger may be written there: `files.reserve`."""
    reserve(folder, lambda existing: has_stamp(existing / FILE, KIND), ignore)


def load(folder: Path | str, *, damaged: bool = False) -> LedgerContents:
    """Returns the complete rows, without taking the lock: a run may still be writing.

    Raises LedgerError where a row was changed, rows are missing inside, or a certificate does not follow from
    its votes. With `damaged` such rows are let through, for an audit that lists them.
    """
    path = Path(folder, TABLE)
    return _parse(_read(path), read_manifest(folder), path, damaged=damaged)


def save(folder: Path, manifest: Manifest, lines: Sequence[str]) -> None:
    """Writes a complete ledger from its lines without checksums, into a folder that nobody reads yet."""
    sealed, chain = [HEADER], digest(manifest.to_json())
    for line in lines:
        sealed.append(seal(line, chain))
        chain = chain_of(sealed[-1])
    write_json(folder / FILE, manifest.to_json())
    write_atomic(folder / TABLE, "\n".join([*sealed, ""]))


def _resume(folder: Path, manifest: Manifest) -> LedgerContents:
    """Returns what a ledger holds, ready for the next row; starts it if it has none."""
    path = folder / TABLE
    data = _read(path)
    if data.count(b"\n") < 2:  # There is not one complete row, so any settings may start here.
        _require_header(data, path)
        save(folder, manifest, ())
        data = _read(path)
    # Rows of other settings must not be continued.
    remedy = "use another folder or rerun with the original settings"
    require_same(read_manifest(folder), manifest, f"the settings {folder} was started with", remedy)
    contents = _parse(data, manifest, path)

    # Every image once, in the manifest's order: then what is missing is exactly the rest of the indices.
    indices = [row.index for row in contents.rows]
    if doubled := image_differences(indices, indices).doubled:
        raise LedgerError(f"{path} holds images twice ({doubled[:5]}); certify again with a fresh ledger.")
    if manifest.expected is not None and tuple(indices) != manifest.expected[: len(indices)]:
        raise LedgerError(f"The rows of {path} are not in its manifest's order; certify with a fresh ledger.")

    # Cut the torn last line off, so that the next row begins on a line of its own.
    if contents.size < len(data):
        with storage(path), path.open("r+b") as file:
            file.truncate(contents.size)
            os.fsync(file.fileno())
    return contents


def _read(path: Path) -> bytes:
    with storage(path):
        return path.read_bytes() if path.exists() else b""


def _parse(data: bytes, manifest: Manifest, path: Path, *, damaged: bool = False) -> LedgerContents:
    """Returns all complete rows of a table; a torn last line is left out."""
    _require_header(data, path)
    header, *lines = data.split(b"\n")[:-1] or [b""]  # What follows the last newline is torn.
    chain = digest(load_json(path.with_name(FILE)))
    contents, size = LedgerContents(manifest, [], [], chain, [], 0), len(header) + 1
    label_aware = manifest.certify.plan.uses_label
    for number, line in enumerate(lines, start=2):
        try:
            sealed = line.decode()
            bare = sealed.rsplit("\t", len(CHECKS))[0]
            row = from_line(bare, manifest.aggregations, manifest.classes, label_aware=label_aware)
        except ValueError as error:
            if number == len(lines) + 1:
                break
            raise LedgerError(f"Line {number} of {path} is no row ({error}); certify afresh.") from error
        # First the checksums, then the certificate against its votes.
        checked: Certified | RowError = row
        if problem := seal_error(sealed, chain):
            checked = RowError(row.index, "checksum", problem)
        elif not damaged:
            checked = verify_row(row, manifest)
        if isinstance(checked, RowError):
            if not damaged:
                raise LedgerError(
                    f"Line {number} of {path} (image {row.index}) is not as it was certified: "
                    f"{checked.message}. Restore the file or certify afresh; `audit` lists all such rows."
                )
            contents.errors.append(checked)
        chain = chain_of(sealed)
        contents.rows.append(row if isinstance(checked, RowError) else checked)
        contents.lines.append(bare)
        size += len(line) + 1
    return contents._replace(size=size, chain=chain)


def _require_header(data: bytes, path: Path) -> None:
    """Raises LedgerError unless the file begins with our header, of which the end may still be unwritten."""
    # A run that was killed at once leaves a part of the header.
    line = f"{HEADER}\n".encode()
    if not line.startswith(data[: len(line)]):
        raise LedgerError(f"{path} is no ledger: it begins with {data[:60]!r}; use another folder.")
