"""The ledger of a certification run: a folder with `ledger.tsv`, a durable line per image, and its manifest.

A run that is killed at any moment and started again leaves the same bytes as one that was never interrupted,
the time column apart: rows stand in the order of the manifest's `indices`, and a torn last line is dropped.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from smoothheads.errors import LedgerError, StorageError
from smoothheads.files import exclusive, storage, write_atomic, write_json
from smoothheads.results.manifest import Manifest, expected_indices, normal, require_equal
from smoothheads.results.row import HEADER, Row, from_line, to_line

TABLE = "ledger.tsv"
MANIFEST = "manifest.json"


class Ledger:
    """An open ledger; made by `Ledger.open`."""

    def __init__(self, path: Path, file: FileIO, rows: Sequence[Row], manifest: Manifest) -> None:
        self._path, self._file = path, file
        self._rows = list(rows)
        self._done = {row.index for row in rows}
        self._expected = expected_indices(manifest)
        self._voting = rules_of(manifest), int(manifest.get("classes", 0))

    @classmethod
    @contextmanager
    def open(cls, folder: Path, manifest: Manifest, *, fresh: bool = False) -> Iterator[Ledger]:
        """Starts a ledger or goes on with one; `fresh` throws away what is there.

        Raises LedgerError where another process holds the folder, where its rows were made with other
        settings, or where they are damaged.
        """
        path = folder / TABLE
        with storage(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder):
            if fresh:
                with storage(path):
                    path.unlink(missing_ok=True)
            rows = _resume(folder, normal(manifest))
            with storage(path):
                file = path.open("ab", buffering=0)
            with file:
                yield cls(path, file, rows, manifest)

    @property
    def done(self) -> set[int]:
        return set(self._done)

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(self._rows)

    def append(self, row: Row) -> None:
        """After this the row is on the disk; if it raises, the file is as it was."""
        self._check(row)
        data = (to_line(row) + "\n").encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            with storage(self._path):
                _write_all(self._file, data)
                os.fsync(self._file.fileno())
        except StorageError:
            self._file.truncate(size)
            raise
        self._rows.append(row)
        self._done.add(row.index)

    def _check(self, row: Row) -> None:
        if row.index in self._done:
            raise LedgerError("an image not yet in the ledger", f"index {row.index}", "skip the done ones")
        if self._expected is not None:
            left = self._expected[len(self._rows) :]
            if not left or left[0] != row.index:
                wanted = f"index {left[0]}" if left else "no further index"
                raise LedgerError(wanted, f"{row.index}", "append in the order of the manifest's indices")
        for votes in (row.selection, row.votes):
            if votes is not None and (votes.rules, votes.counts.shape[1]) != self._voting:
                raise LedgerError(
                    f"votes as (rules, classes) {self._voting}",
                    f"{(votes.rules, votes.counts.shape[1])}",
                    "name the rules and the number of classes in the manifest",
                )


class Contents(NamedTuple):
    manifest: Manifest
    rows: list[Row]
    lines: list[str]
    """The rows as they stand in the file, without newlines."""


def load(folder: Path) -> Contents:
    """The whole rows, without the lock: a run may still be writing."""
    manifest = read_manifest(folder)
    data = _read(folder / TABLE)
    _check_header(data, folder / TABLE)
    rows, whole = _parse(data, manifest, folder / TABLE)
    return Contents(manifest, rows, data[:whole].decode().split("\n")[1:-1])


def read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LedgerError(f"a manifest at {path}", str(error), "point at the folder of a run") from error
    if not isinstance(manifest, dict):
        raise LedgerError(f"an object in {path}", type(manifest).__name__, "point at the folder of a run")
    return manifest


def rules_of(manifest: Manifest) -> tuple[str, ...]:
    return tuple(manifest.get("rules", ()))


def _resume(folder: Path, manifest: Manifest) -> list[Row]:
    path = folder / TABLE
    data = _read(path)
    _check_header(data, path)
    if data.count(b"\n") < 2:  # not one whole row: nothing to lose, whatever the settings were
        write_json(folder / MANIFEST, manifest)
        write_atomic(path, HEADER + "\n")
        return []
    require_equal(read_manifest(folder), manifest, str(folder))
    rows, whole = _parse(data, manifest, path)
    _check_order([row.index for row in rows], expected_indices(manifest), path)
    if whole < len(data):
        with storage(path), path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    return rows


def _read(path: Path) -> bytes:
    with storage(path):
        return path.read_bytes() if path.exists() else b""


def _parse(data: bytes, manifest: Manifest, path: Path) -> tuple[list[Row], int]:
    """The whole rows and how many bytes they take with the header; a torn last line is left out."""
    header, *lines = data.split(b"\n")[:-1] or [b""]  # what follows the last newline is torn
    rules, classes = rules_of(manifest), int(manifest.get("classes", 0))
    rows, whole = [], len(header) + 1
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(from_line(line.decode(), rules, classes))
        except ValueError as error:
            if number == len(lines):
                break
            raise LedgerError(
                f"a whole row in line {number + 1} of {path}", str(error), "run again with a fresh ledger"
            ) from error
        whole += len(line) + 1
    return rows, whole


def _check_header(data: bytes, path: Path) -> None:
    header = f"{HEADER}\n".encode()
    if not header.startswith(data[: len(header)]):
        raise LedgerError(f"the header of a ledger in {path}", repr(data[:60]), "use another folder")


def _check_order(indices: list[int], expected: tuple[int, ...] | None, path: Path) -> None:
    twice = [index for index, count in Counter(indices).items() if count > 1]
    if twice:
        raise LedgerError(f"each image once in {path}", f"twice: {twice[:5]}", "run with a fresh ledger")
    if expected is not None and tuple(indices) != expected[: len(indices)]:
        raise LedgerError(
            f"rows of {path} in the order of its manifest", "another order", "run with a fresh ledger"
        )


def _write_all(file: FileIO, data: bytes) -> None:
    """One write; the system may take a part of it and then refuse the rest."""
    while data:
        data = data[file.write(data) or 0 :]
