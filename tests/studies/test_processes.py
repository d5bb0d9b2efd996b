"""A study in processes: killed in the middle and started again, it gives the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.studies.small import TEXT, Inline, results, start

from smoothheads.runs.executors import ONE_THREAD, Future, ProcessExecutor
from smoothheads.studies.jobs import STOP_SECONDS
from smoothheads.studies.plan import StudyPlan, Training
from smoothheads.studies.run import StudyRun
from smoothheads.studies.store import LOG
from smoothheads.studies.tables import all_tables

LONG = TEXT.replace("epochs = 1", "epochs = 200").replace("seeds = [0, 1]", "seeds = [0]")
LONG = LONG.split("[arms.pair]")[0] + "[certify]" + LONG.split("[certify]")[1]
"""One arm whose training can be killed."""


def processes() -> ProcessExecutor:
    return ProcessExecutor(1, STOP_SECONDS, ONE_THREAD)


@pytest.mark.skipif(sys.platform == "win32", reason="kills a group of processes")
def test_study_killed_and_started_again_gives_the_same(tmp_path: Path) -> None:
    killed, undisturbed = _killed_in_training(tmp_path), start(LONG, tmp_path / "undisturbed")
    assert killed.run_on(processes()) == {}
    undisturbed.run_on(Inline())
    ours, theirs = (all_tables(results(run)) for run in (killed, undisturbed))
    assert ours == theirs
    facts = [run.store.facts(_training(run.plan)) or {} for run in (killed, undisturbed)]
    assert facts[0]["weights"] == facts[1]["weights"]


def test_worker_that_dies_is_a_failed_arm(tmp_path: Path) -> None:
    run = start(LONG, tmp_path)

    class Dying(ProcessExecutor):
        """Kills its worker as soon as it has a job."""

        def wait(self, seconds: float) -> list[Future[Any]]:
            for worker in self._workers:
                worker.process.kill()
            return super().wait(seconds)

    failed = run.run_on(Dying(1, STOP_SECONDS, ONE_THREAD))
    training = _training(run.plan)
    assert "SIGKILL" in failed[training.key]
    assert f"See trained/{training.key}/{LOG} in the store." in failed[training.key]
    assert results(run).failed


def _killed_in_training(folder: Path) -> StudyRun:
    """A study killed with its workers after an epoch; one that ended before the kill is tried again."""
    file = folder / "small.toml"
    file.write_text(LONG)
    for attempt in range(20):
        run = start(LONG, folder / f"killed-{attempt}")
        training = _training(run.plan)
        command = [sys.executable, "-m", "smoothheads", "study", str(file), "--store", str(run.store.root)]
        process = subprocess.Popen(
            [*command, "--workers", "1"],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        metrics = run.store.artefact(training) / "metrics.jsonl"
        _until(partial(_has_text, metrics))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _until(partial(_held_by_nobody, metrics.parent))
        if run.store.facts(training) is None:
            return run
    raise AssertionError("the training always ended before it could be killed")


def _training(plan: StudyPlan) -> Training:
    return next(item for item in plan.items if isinstance(item, Training))


def _until(done: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _has_text(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def _held_by_nobody(folder: Path) -> bool:
    """Workers notice within a second that nobody waits for them."""
    from smoothheads.errors import StorageError
    from smoothheads.files import exclusive

    try:
        with exclusive(folder):
            return True
    except StorageError:
        return False
