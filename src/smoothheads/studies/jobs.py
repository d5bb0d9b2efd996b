"""What a worker of a study does: makes one item and notes how it went. Made again, an item goes on.

A job is the item and the folder of the store, nothing else, so that an executor on any machine that sees the
store can run it.
"""

from __future__ import annotations

import re
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothheads.errors import HeldError, SmoothheadsError
from smoothheads.provenance import processor
from smoothheads.studies import reading
from smoothheads.studies.plan import Certification, Item, Joining, Training
from smoothheads.studies.store import LOG, StudyStore

STOP_SECONDS = 60.0
"""How long a training may take to save its state when it is stopped."""
ELSEWHERE = "another process is making it"
"""What `perform` returns of an item that another study on the same store has begun: no failure."""


@dataclass(frozen=True, slots=True)
class StudyJob:
    item: Item
    store: StudyStore

    @property
    def key(self) -> str:
        return self.item.key


def perform(job: StudyJob) -> str | None:
    """Makes the item unless it is there; notes a failure and returns its message, or ELSEWHERE."""
    folder = job.store.folder(job.item)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with (
            job.store.held(job.item),
            (folder / LOG).open("a") as log,
            redirect_stdout(log),
            redirect_stderr(log),
        ):
            return _perform(job)
    except HeldError:
        return ELSEWHERE


def _perform(job: StudyJob) -> str | None:
    if job.store.facts(job.item) is not None:
        return None
    _forget_peak()
    started, share = time.monotonic(), 1.0 - fraction(job.item, job.store)
    try:
        facts = _make(job.item, job.store)
    except HeldError:  # somebody trains or certifies into its folder without a study
        raise
    except Exception as error:  # also of somebody's own component: one arm fails, not the study
        traceback.print_exc()
        known = isinstance(error, SmoothheadsError)
        message = str(error) if known else f"{type(error).__name__}: {error}"
        job.store.fail(job.item, message)
        return message
    cost = {"seconds": time.monotonic() - started, "share": share, "peak_mib": _peak()}
    job.store.finish(job.item, facts | cost | {"processor": processor()})
    return None


def fraction(item: Item, store: StudyStore) -> float:
    """How much of an item is made, by what is on the disk."""
    out = store.artefact(item)
    if store.facts(item) is not None:
        return 1.0
    if isinstance(item, Training):
        return min(1.0, reading.epochs_written(out) / item.config.train.epochs)
    if isinstance(item, Certification):
        expected = reading.rows_expected(out)
        return reading.rows_written(out) / expected if expected else 0.0
    return 0.0


def _make(item: Item, store: StudyStore) -> dict[str, Any]:
    from smoothheads.runs.ensemble import ensemble_run
    from smoothheads.studies import stages

    out = store.artefact(item)
    match item:
        case Training():
            start = None if item.start is None else network_folder(item.start, store)
            checkpoint = stages.train(item.config, start, out)
            return reading.fit(out) | {"weights": reading.weights_hash(checkpoint)}
        case Joining():
            checkpoint = ensemble_run([network_folder(member, store) for member in item.members], out)
            return {"weights": reading.weights_hash(checkpoint)}
        case Certification():
            network = network_folder(item.network, store)
            stages.certify(network, item.network.data, item.images, item.config, out)
            return {"images": reading.rows_written(out)}


def network_folder(item: Training | Joining, store: StudyStore) -> Path:
    """Where its checkpoint is."""
    artefact = store.artefact(item)
    return artefact / "checkpoint" if isinstance(item, Training) else artefact


_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _forget_peak() -> None:
    with suppress(OSError):
        _RESET.write_text("5")


def _peak() -> float | None:
    """Largest memory of this process since `_forget_peak`, in MiB; none where the system does not tell."""
    with suppress(OSError):
        if found := re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text()):
            return int(found[1]) / 2**10
    return None
