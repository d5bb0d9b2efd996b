"""Where networks and ledgers lie: one folder each, named by what it was made from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothheads.config import load_json
from smoothheads.files import stamped, write_json, write_own
from smoothheads.studies.plan import Certification, Item, Joining, Training

ESTIMATE = "smoothheads-estimate/1"
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
    def noting(self, study: str, seconds: Mapping[str, float], jobs: int) -> Iterator[None]:
        """While a study runs, others can read how long its items take and how many are made at once."""
        path = self._note(study)
        note = {"format": ESTIMATE, "seconds": dict(seconds), "jobs": jobs}
        write_own(path, json.dumps(note, indent=2) + "\n", ESTIMATE)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)

    def noted(self, study: str) -> dict[str, Any] | None:
        """What a study that is running noted; none if it is not."""
        path = self._note(study)
        return load_json(path) if stamped(path, ESTIMATE) else None

    def _note(self, study: str) -> Path:
        return self.root / f".{study}.estimate.json"

    def fail(self, item: Item, message: str) -> None:
        write_json(self.folder(item) / FAILED, {"message": message})
