"""Where networks and ledgers lie: one folder each, named by what it was made from."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothheads.config import load_json
from smoothheads.errors import ConfigError
from smoothheads.files import exclusive, has_stamp, running, write_json, write_stamped
from smoothheads.studies.plan import Certification, Item, Joining, Training

ESTIMATE = "smoothheads-estimate/2"
DONE, FAILED, LOG = "done.json", "failed.json", "output.txt"


@dataclass(frozen=True, slots=True)
class StudyStore:
    root: Path

    def folder(self, item: Item) -> Path:
        match item:
            case Training():
                return self.root / "trained" / item.key
            case Joining():
                return self.root / "joined" / item.key
            case Certification():
                return self.root / "certified" / item.key

    def artefact(self, item: Item) -> Path:
        """The run folder, checkpoint or ledger inside the item's folder; notes about it lie beside it."""
        return (
            self.folder(item) / {Training: "run", Joining: "checkpoint", Certification: "ledger"}[type(item)]
        )

    def held(self, item: Item) -> AbstractContextManager[None]:
        """While this process makes it, here or on a node of a cluster; a HeldError if another one does."""
        return exclusive(self.folder(item))

    def facts(self, item: Item) -> dict[str, Any] | None:
        """What was noted when the item was finished; none if it is not."""
        path = self.folder(item) / DONE
        return load_json(path) if path.is_file() else None

    def failure(self, item: Item) -> str | None:
        path = self.folder(item) / FAILED
        return str(load_json(path)["message"]) if path.is_file() else None

    def forget_failure(self, item: Item) -> None:
        """It is tried again."""
        (self.folder(item) / FAILED).unlink(missing_ok=True)

    def finish(self, item: Item, facts: dict[str, Any]) -> None:
        self.forget_failure(item)
        write_json(self.folder(item) / DONE, facts)

    @contextmanager
    def noting(self, seconds: Mapping[str, float], jobs: int) -> Iterator[None]:
        """While a study runs, others can read how long its items take and how many are made at once."""
        for path, note in self._notes():
            if _ended(note):
                path.unlink(missing_ok=True)
        host, process = socket.gethostname(), os.getpid()
        path = self.root / f".{host}-{process}.estimate.json"
        note = {"format": ESTIMATE, "host": host, "process": process, "seconds": dict(seconds), "jobs": jobs}
        write_stamped(path, json.dumps(note, indent=2) + "\n", ESTIMATE)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)

    def noted(self) -> list[dict[str, Any]]:
        """What the studies noted that are running; one that was killed here noted it too, and is left out."""
        return [note for _, note in self._notes() if not _ended(note)]

    def _notes(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        for path in sorted(self.root.glob(".*.estimate.json")):
            if has_stamp(path, ESTIMATE):
                with suppress(ConfigError):  # damaged, or its study ended just now
                    yield path, load_json(path)

    def fail(self, item: Item, message: str) -> None:
        write_json(self.folder(item) / FAILED, {"message": message})


def _ended(note: Mapping[str, Any]) -> bool:
    """Whether the process that wrote it is gone, as far as this machine can tell."""
    process = note.get("process")
    return note.get("host") == socket.gethostname() and isinstance(process, int) and not running(process)
