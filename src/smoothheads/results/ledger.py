"""The ledger of a certification run: a folder with `ledger.tsv`, a durable line per image, and its manifest.

A run that is killed at any moment and started again leaves the same bytes as one that was never interrupted,
the time column apart: rows stand in the order of the manifest's `indices`, and a torn last line is dropped.
Rows carry checksums (see `row.Checksums`); ledgers of version 1 do not, and go on without.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from smoothheads.errors import LedgerError
from smoothheads.files import append, exclusive, has_stamp, reserve, storage, write_atomic, write_json
from smoothheads.results.manifest import FILE, KIND, Manifest, read_manifest, require_same
from smoothheads.results.recount import Damage, recounted
from smoothheads.results.row import CHECKS, HEADER, HEADER_1, Checksums, from_line, to_line
from smoothheads.types import Certified

TABLE = "ledger.tsv"


class Ledger:
    """An open ledger; made by `Ledger.open`. It remembers which images it has, not their rows, so that a long
    run needs no more memory than a short one."""

    def __init__(self, path: Path, file: FileIO, contents: LedgerContents) -> None:
        self._path, self._file, self._manifest = path, file, contents.manifest
        self._done = {row.index for row in contents.rows}
        self._expected = contents.manifest.expected
        self._chain = contents.chain

    @classmethod
    @contextmanager
    def open(
        cls, folder: Path | str, manifest: Manifest, *, fresh: bool = False, beside: Collection[str] = ()
    ) -> Iterator[Ledger]:
        """Starts a ledger or goes on with one; `fresh` throws away what is there. Names in `beside` may lie
        in the folder before.

        Raises StorageError where another process holds the folder or something else lies in it, LedgerError
        where its rows were made with other settings, or are damaged.
        """
        folder = Path(folder)
        path = folder / TABLE
        claim_folder(folder, beside)
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
        return set(self._done)

    def __len__(self) -> int:
        return len(self._done)

    def append(self, row: Certified) -> None:
        """After this the row is on the disk; if it raises, the file is as it was."""
        self._check(row)
        line = to_line(row)
        sealed = line if self._chain is None else self._chain.seal(line)
        append(self._file, f"{sealed}\n".encode(), self._path)
        self._chain = self._chain and self._chain.after(sealed)
        self._done.add(row.index)

    def _check(self, row: Certified) -> None:
        if row.index in self._done:
            raise LedgerError("an image not yet in the ledger", f"index {row.index}", "skip the done ones")
        if self._expected is not None:
            left = len(self) < len(self._expected)
            if not left or self._expected[len(self)] != row.index:
                wanted = f"index {self._expected[len(self)]}" if left else "no further index"
                raise LedgerError(wanted, f"{row.index}", "append in the order of the manifest's indices")
        voting = self._manifest.aggregations, self._manifest.classes
        for votes in (row.selection, row.votes):
            if (votes.aggregations, votes.counts.shape[1]) != voting:
                raise LedgerError(
                    f"votes as (aggregations, classes) {voting}",
                    f"{(votes.aggregations, votes.counts.shape[1])}",
                    "name the aggregations and the number of classes in the manifest",
                )


def claim_folder(folder: Path, beside: Collection[str] = ()) -> None:
    """Raises StorageError unless a ledger may be written there: `files.reserve`."""
    reserve(folder, lambda there: has_stamp(there / FILE, KIND), beside)


class LedgerContents(NamedTuple):
    manifest: Manifest
    rows: list[Certified]
    lines: list[str]
    """The rows as they stand in the file, without newlines and checksums."""
    chain: Checksums | None
    """The running checksum after the last row; None in a ledger of version 1."""
    damage: list[Damage]
    """Rows whose checksums are wrong; found only where damage is not refused."""
    whole: int
    """Bytes of header and whole rows."""


def load(folder: Path | str, *, damaged: bool = False) -> LedgerContents:
    """The whole rows, without the lock: a run may still be writing.

    Raises LedgerError where a row was changed, rows are missing inside, or a certificate does not follow from
    its votes; `damaged` rows are let through where somebody else looks at them.
    """
    manifest = read_manifest(folder)
    path = Path(folder, TABLE)
    return _parse(_read(path), manifest, path, damaged=damaged)


def save(folder: Path, manifest: Manifest, lines: Sequence[str], *, sealed: bool = True) -> None:
    """Writes a whole ledger from its lines without checksums, into a folder that nobody reads yet."""
    rows, chain = [HEADER if sealed else HEADER_1], Checksums()
    for line in lines:
        rows.append(chain.seal(line) if sealed else line)
        chain = chain.after(rows[-1])
    write_json(folder / FILE, manifest.to_json())
    write_atomic(folder / TABLE, "\n".join([*rows, ""]))


def _resume(folder: Path, manifest: Manifest) -> LedgerContents:
    path = folder / TABLE
    data = _read(path)
    _header(data, path)
    if data.count(b"\n") < 2:  # not one whole row: nothing to lose, whatever the settings were
        save(folder, manifest, ())
        return LedgerContents(manifest, [], [], Checksums(), [], 0)
    remedy = "use another folder or rerun with the original settings"
    require_same(read_manifest(folder), manifest, f"the settings {folder} was started with", remedy)
    contents = _parse(data, manifest, path)
    _check_order([row.index for row in contents.rows], manifest.expected, path)
    if contents.whole < len(data):
        with storage(path), path.open("r+b") as file:
            file.truncate(contents.whole)
            os.fsync(file.fileno())
    return contents


def _read(path: Path) -> bytes:
    with storage(path):
        return path.read_bytes() if path.exists() else b""


def _parse(data: bytes, manifest: Manifest, path: Path, *, damaged: bool = False) -> LedgerContents:
    """A torn last line is left out."""
    chain = Checksums() if _header(data, path) == HEADER else None
    header, *lines = data.split(b"\n")[:-1] or [b""]  # what follows the last newline is torn
    found = LedgerContents(manifest, [], [], None, [], 0)
    whole = len(header) + 1
    for number, line in enumerate(lines, start=2):
        try:
            text = line.decode()
            bare = text.rsplit("\t", len(CHECKS))[0] if chain else text
            row = from_line(bare, manifest.aggregations, manifest.classes, label_aware=manifest.label_aware)
        except (ValueError, OverflowError) as error:
            if number == len(lines) + 1:
                break
            raise LedgerError(
                f"a whole row in line {number} of {path}", str(error), "run again with a fresh ledger"
            ) from error
        broken = chain.broken(text) if chain else None
        chain = chain and chain.after(text)
        if broken and damaged:
            found.damage.append(Damage(row.index, "checksum", broken))
        elif not damaged:
            row = _undamaged(row, broken, manifest, f"line {number} of {path}")
        found.rows.append(row)
        found.lines.append(bare)
        whole += len(line) + 1
    return found._replace(whole=whole, chain=chain)


def _undamaged(row: Certified, broken: str | None, manifest: Manifest, where: str) -> Certified:
    checked = Damage(row.index, "checksum", broken) if broken else recounted(row, manifest)
    if isinstance(checked, Damage):
        raise LedgerError(
            f"{where} (image {row.index}) as it was certified",
            checked.message,
            "restore the file, or certify again with a fresh ledger; `audit` lists all such rows",
        )
    return checked


def _header(data: bytes, path: Path) -> str:
    """The header that the file has, or that of this version if it holds no more than a part of it."""
    for header in (HEADER, HEADER_1):
        line = f"{header}\n".encode()
        if line.startswith(data[: len(line)]):
            return header
    raise LedgerError(f"the header of a ledger in {path}", repr(data[:60]), "use another folder")


def _check_order(indices: list[int], expected: tuple[int, ...] | None, path: Path) -> None:
    twice = [index for index, count in Counter(indices).items() if count > 1]
    if twice:
        raise LedgerError(f"each image once in {path}", f"twice: {twice[:5]}", "run with a fresh ledger")
    if expected is not None and tuple(indices) != expected[: len(indices)]:
        raise LedgerError(
            f"rows of {path} in the order of its manifest", "another order", "run with a fresh ledger"
        )
