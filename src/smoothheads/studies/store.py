"""Where networks and ledgers lie: one folder each, named by what it was made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothheads.config import load_json
from smoothheads.files import write_json
from smoothheads.studies.plan import Certification, Item, Joining, Training

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

    def finish(self, item: Item, facts: dict[str, Any]) -> None:
        (self.folder(item) / FAILED).unlink(missing_ok=True)
        write_json(self.folder(item) / DONE, facts)

    def estimate(self, study: str) -> Path:
        """Where a running study notes how long it takes; it alone writes and removes that."""
        return self.root / "estimates" / f"{study}.json"

    def fail(self, item: Item, message: str) -> None:
        write_json(self.folder(item) / FAILED, {"message": message})
