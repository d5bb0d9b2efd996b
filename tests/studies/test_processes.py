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

import pytest
from tests.studies.small import TEXT, Inline, study

from smoothheads.errors import WorkerError
from smoothheads.runs.executors import ONE_THREAD, ProcessExecutor
from smoothheads.studies.jobs import STOP_SECONDS, StudyJob, perform
from smoothheads.studies.outcome import collect
from smoothheads.studies.plan import StudyPlan, Training
from smoothheads.studies.prepare import prepare
from smoothheads.studies.run import run
from smoothheads.studies.store import StudyStore
from smoothheads.studies.tables import all_tables

LONG = TEXT.replace("epochs = 1", "epochs = 200").replace("seeds = [0, 1]", "seeds = [0]")
LONG = LONG.split("[arms.pair]")[0] + "[certify]" + LONG.split("[certify]")[1]
"""One arm whose training can be killed."""


@pytest.mark.skipif(sys.platform == "win32", reason="kills a group of processes")
def test_killed_and_started_again_it_gives_the_same(tmp_path: Path) -> None:
    plan, _ = prepare(study(LONG))
    killed = _killed_in_training(plan, tmp_path)
    whole = StudyStore(tmp_path / "whole")
    assert run(plan, killed, ProcessExecutor(1, STOP_SECONDS, ONE_THREAD), {}) == {}
    run(plan, whole, Inline(), {})
    ours, theirs = (all_tables(collect(plan, store)) for store in (killed, whole))
    assert ours == theirs
    facts = [store.facts(_training(plan)) or {} for store in (killed, whole)]
    assert facts[0]["weights"] == facts[1]["weights"]


def test_a_process_that_dies_is_a_failed_arm(tmp_path: Path) -> None:
    plan, _ = prepare(study(LONG))
    executor = ProcessExecutor(1, STOP_SECONDS, ONE_THREAD)
    future = executor.submit(perform, StudyJob(_training(plan), StudyStore(tmp_path)))
    ((worker, _),) = executor._busy.values()
    worker.process.kill()
    assert executor.wait(60) == [future]
    executor.close()
    with pytest.raises(WorkerError, match=r"was ended by SIGKILL \(exit code -9\)"):
        future.result()


def _killed_in_training(plan: StudyPlan, folder: Path) -> StudyStore:
    """A study killed with its workers after an epoch; one that ended before the kill is tried again."""
    file = folder / "small.toml"
    file.write_text(LONG)
    for attempt in range(20):
        store = StudyStore(folder / f"killed-{attempt}")
        command = [sys.executable, "-m", "smoothheads", "study", str(file), "--store", str(store.root)]
        process = subprocess.Popen(
            [*command, "--workers", "1"],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        metrics = store.artefact(_training(plan)) / "metrics.jsonl"
        _until(partial(_has_text, metrics))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _until(partial(_held_by_nobody, metrics.parent))
        if store.facts(_training(plan)) is None:
            return store
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
