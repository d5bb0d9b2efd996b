"""The store of all studies: networks, ledgers and rows, each under the hash of everything it was made from.

    STORE/trained/KEY/run            a training run, with done.json beside it when it is finished
    STORE/joined/KEY/checkpoint      an ensemble
    STORE/certified/KEY/ledger       a certification
    STORE/rows/KEY-AGGREGATION.json  a row of a study, with its images in a compressed log

A row is written when its ledger is finished, or copied from a folder that `--out` wrote: rows outlive the
networks and ledgers that they were made from.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smoothheads.config import from_dict, load_json, to_dict
from smoothheads.errors import SmoothheadsError
from smoothheads.files import exclusive, write_json
from smoothheads.provenance import versions
from smoothheads.results import Results, read_log
from smoothheads.results.derive import recertified
from smoothheads.results.ledger import TABLE
from smoothheads.results.manifest import read_manifest
from smoothheads.results.row import parse_time
from smoothheads.runs.models import METRICS
from smoothheads.studies import results
from smoothheads.studies.plan import (
    Certification,
    Item,
    Network,
    PlannedRow,
    StudyPlan,
    Training,
    Votes,
    with_needed,
)
from smoothheads.studies.results import RowFacts, StudyResults, StudyRow

DONE, FAILED, LOG = "done.json", "failed.json", "output.txt"


@dataclass(frozen=True, slots=True)
class StudyStore:
    """The folder in which everything that studies make is kept."""

    root: Path

    # Items

    def folder(self, item: Item) -> Path:
        return self.root / item.folder / item.key

    def artefact(self, item: Item) -> Path:
        """Returns the run folder, checkpoint or ledger inside the item's folder."""
        return self.folder(item) / item.product

    def checkpoint(self, network: Network) -> Path:
        artefact = self.artefact(network)
        return artefact / "checkpoint" if isinstance(network, Training) else artefact

    def lock(self, item: Item) -> AbstractContextManager[None]:
        """Holds the item while this process makes it; raises HeldError if another process does."""
        return exclusive(self.folder(item))

    def facts(self, item: Item) -> dict[str, Any] | None:
        """Returns what was noted when the item was finished; None if it is not finished."""
        path = self.folder(item) / DONE
        return load_json(path) if path.is_file() else None

    def finish(self, item: Item, facts: dict[str, Any]) -> None:
        self.forget_failure(item)
        write_json(self.folder(item) / DONE, facts)

    def fail(self, item: Item, message: str) -> None:
        write_json(self.folder(item) / FAILED, {"message": message})

    def failure(self, item: Item) -> str | None:
        path = self.folder(item) / FAILED
        return str(load_json(path)["message"]) if path.is_file() else None

    def forget_failure(self, item: Item) -> None:
        (self.folder(item) / FAILED).unlink(missing_ok=True)

    def progress(self, item: Item) -> tuple[float, float]:
        """Returns how much of an item has been made and how many seconds that took, by what is on the disk.

        Of a training epochs count, of a certification images; joining takes no time. A last line may be torn.
        """
        if (facts := self.facts(item)) is not None:
            return 1.0, facts.get("seconds", 0.0)
        seconds, total, path = list[float](), 0, self.artefact(item)
        with suppress(OSError, ValueError, LookupError, TypeError, SmoothheadsError):
            if isinstance(item, Training):
                total = item.config.train.epochs
                for line in (path / METRICS).read_text().splitlines():
                    seconds.append(float(json.loads(line)["seconds"]))
            elif isinstance(item, Certification):
                total = len(read_manifest(path).expected or ())
                for line in (path / TABLE).read_text().splitlines()[1:]:
                    seconds.append(parse_time(line.split("\t")[5]))
        return min(1.0, len(seconds) / max(1, total)), sum(seconds)

    # Rows

    def saved_rows(self) -> set[Votes]:
        """Returns the votes of all rows that need not be made again."""
        parts = (path.stem.partition("-") for path in (self.root / results.ROWS).glob("*.json"))
        return {(key, aggregation) for key, _, aggregation in parts}

    def import_rows(self, folder: Path) -> StudyResults:
        """Copies the certified rows of a folder that `--out` wrote, and returns what it holds.

        Raises LedgerError if it is damaged.
        """
        study, saved = results.load(folder), self.saved_rows()
        for row in study.certified:
            if row.facts.certification and row.facts.votes not in saved:
                self._save_row(row.log, row.facts)
        return study

    def collect(self, plan: StudyPlan) -> StudyResults:
        """Returns the results of a plan, as far as they have been made."""
        study = plan.study
        return StudyResults(
            name=study.name,
            title=study.title,
            arms={arm.name: arm.title for arm in study.arms},
            radii=study.show.radii,
            differences=study.differences,
            rows=tuple(self._row(row) for row in plan.rows),
            certify=dict(study.certify),
            images=study.images,
            made_by=versions() | {"machine": platform.machine()},
        )

    def _row(self, row: PlannedRow) -> StudyRow:
        name = (row.setting, row.sigma, row.arm, row.seed)
        try:
            found = self._saved_row(row)
            if found is None and (done := self.facts(row.certification)) is not None:
                self._save_certified(row, done)
                found = self._saved_row(row)  # with all numbers as every later run will read them
        except SmoothheadsError as error:  # the ledger is damaged
            return StudyRow(*name, None, RowFacts(failed=str(error)))
        if found is not None:
            return StudyRow(*name, *found)
        # Not certified: because something that it needs has failed, or because its turn has not come.
        broken = (self.failure(item) for item in with_needed(row.certification) if self.facts(item) is None)
        if message := next(filter(None, broken), None):
            return StudyRow(*name, None, RowFacts(failed=message))
        facts = RowFacts(certification=row.certification.key, aggregation=row.aggregation)
        return StudyRow(*name, None, facts)

    def _save_certified(self, row: PlannedRow, done: Mapping[str, Any]) -> None:
        """Makes a row of a finished ledger and saves it with the facts of its networks."""
        from smoothheads.studies.jobs import network_size

        log = read_log(self.artefact(row.certification))
        log = log if row.aggregation == log.aggregation else recertified(log, aggregation=row.aggregation)
        trained = [each for member in row.network.members if (each := self.facts(member)) is not None]

        # Numbers of an ensemble are means over its members.
        def mean(name: str) -> float | None:
            values = [each[name] for each in trained if each.get(name) is not None]
            return float(np.mean(values)) if values else None

        facts = RowFacts(
            certification=row.certification.key,
            aggregation=row.aggregation,
            weights=tuple(each["weights"] for each in trained),
            loss=mean("loss"),
            easy_fraction=mean("easy_fraction"),
            epoch_seconds=mean("epoch_seconds"),
            train_peak_mib=mean("peak_mib"),
            certify_peak_mib=done.get("peak_mib"),
            processors=tuple(sorted({each["processor"] for each in (*trained, done) if "processor" in each})),
            size=network_size(row.model, row.network.data),
        )
        self._save_row(log, facts)

    def _saved_row(self, row: PlannedRow) -> tuple[Results, RowFacts] | None:
        path = self._row_file(row.votes)
        if not path.is_file():
            return None
        try:
            data = load_json(path)
            log = results.read_rows(path.parent, str(data["file"]), row.sigma, row.certification.config)
            return log, from_dict(RowFacts, data["facts"])
        except (SmoothheadsError, KeyError):  # damaged, so the row is made again
            path.unlink()
            return None

    def _save_row(self, log: Results, facts: RowFacts) -> None:
        path = self._row_file(facts.votes)
        write_json(path, {"file": results.write_rows(log, path.parent), "facts": to_dict(facts)})

    def _row_file(self, votes: Votes) -> Path:
        return self.root / results.ROWS / f"{votes[0]}-{votes[1]}.json"


def training_facts(run: Path) -> dict[str, Any]:
    """Returns loss and easy fraction of the last epoch, and the median seconds of an epoch."""
    path = run / METRICS
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    if not lines:
        return {}
    last = lines[-1]
    facts = {
        "loss": float(np.mean(last["head_loss"])),
        "epoch_seconds": float(np.median([line["seconds"] for line in lines])),
    }
    if "easy_fraction" in last:
        facts["easy_fraction"] = float(np.mean(last["easy_fraction"]))
    return facts
