"""What lies in a folder: classifiers, ledgers, logs and training runs, by the names that clients use.

A name is the path below the folder that is served. It is looked up among what a walk has seen and never
joined to a path, so that no request reaches anything else.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from smoothheads.errors import SmoothheadsError
from smoothheads.results import ledger
from smoothheads.results.manifest import FILE
from smoothheads.runs.layout import CHECKPOINT, CONFIG, METRICS
from smoothheads.serve.network import is_network
from smoothheads.studies.outcome import FACTS

T = TypeVar("T")
DEEPEST = 8
FRESH = 2.0  # seconds for which a walk is good
LIVE = 60.0  # seconds after its last change in which an unfinished run counts as going on
_LOGS = (".tsv", ".txt", ".log")
_HEADER = b"idx\tlabel\tpredict"


@dataclass(frozen=True)
class Contents:
    networks: dict[str, Path] = field(default_factory=dict)
    ledgers: dict[str, Path] = field(default_factory=dict)
    """Folders of ours, and files of others."""
    trainings: dict[str, Path] = field(default_factory=dict)
    studies: dict[str, Path] = field(default_factory=dict)
    """Folders that `study --out` wrote."""


class Catalogue:
    """Walks the folder again when it is asked some time later."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._seen, self._at = Contents(), float("-inf")

    def contents(self) -> Contents:
        with self._lock:
            if time.monotonic() - self._at > FRESH:
                self._seen, self._at = self._walk(), time.monotonic()
            return self._seen

    def networks(self) -> dict[str, Path]:
        return self.contents().networks

    def public(self, message: str) -> str:
        """Without the place of the folder on this machine."""
        return message.replace(f"{self.root.parent}{os.sep}", "")

    def _walk(self) -> Contents:
        seen = Contents()
        inside: set[Path] = set()  # checkpoints of runs and exports, which go by their names
        for folder, files in _folders(self.root):
            name = self._name(folder)
            if is_network(folder) and folder not in inside:
                seen.networks[name] = folder
                inside.add(folder / CHECKPOINT)
            if {ledger.TABLE, FILE} <= files:
                seen.ledgers[name] = folder
            if FACTS in files:
                seen.studies[name] = folder
            if {METRICS, CONFIG} <= files:
                seen.trainings[name] = folder
            for file in sorted(files - {ledger.TABLE}):
                if file.endswith(_LOGS) and _is_log(folder / file):
                    seen.ledgers[self._name(folder / file)] = folder / file
        return seen

    def _name(self, path: Path) -> str:
        return self.root.name if path == self.root else path.relative_to(self.root).as_posix()


class Remembered(Generic[T]):
    """What `read` gives or raises for a path, asked again only when the path has another `stamp`."""

    def __init__(
        self, read: Callable[[Path], T], stamp: Callable[[Path], tuple[int, int]] = lambda _: (0, 0)
    ) -> None:
        self._read, self._stamp = read, stamp
        self._known: dict[Path, tuple[tuple[int, int], T | SmoothheadsError]] = {}

    def __call__(self, path: Path) -> T:
        stamp, known = self._stamp(path), self._known.get(path)
        if known is None or known[0] != stamp:
            try:
                known = stamp, self._read(path)
            except SmoothheadsError as error:
                known = stamp, error
            self._known[path] = known
        if isinstance(known[1], SmoothheadsError):
            raise known[1]
        return known[1]


def stamp(path: Path) -> tuple[int, int]:
    """Changes when the log does; (0, 0) when it is gone."""
    try:
        status = (path / ledger.TABLE if path.is_dir() else path).stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def is_live(path: Path) -> bool:
    return time.time() - stamp(path)[0] / 1e9 < LIVE


def _folders(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """From the top down; hidden folders and links are left alone."""
    for where, folders, files in os.walk(root, followlinks=False):
        folder = Path(where)
        deep = len(folder.relative_to(root).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if deep < DEEPEST else []
        yield folder, set(files)


def _is_log(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_HEADER) + 3).lstrip(b"\xef\xbb\xbf").startswith(_HEADER)
    except OSError:
        return False
