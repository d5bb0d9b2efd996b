"""The smallest study there is, and an executor that runs jobs in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from smoothheads.runs.executors import Executor, Future
from smoothheads.studies.jobs import StudyJob, plan_study
from smoothheads.studies.results import StudyResults
from smoothheads.studies.run import StudyRun
from smoothheads.studies.spec import Study, parse_study
from smoothheads.studies.store import StudyStore

TEXT = """
title = "Small"
sigmas = [0.25]
seeds = [0, 1]

[all]
recipe = "digits-single"
train.epochs = 1
data.subset.first = 40

[arms.single]

[arms.pair]
members = 2

[arms.some]
recipe = "digits-some"
model.heads = 2

[certify]
n = 50
n0 = 20
block = 10

[images]
offset = 3
every = 100
"""


def study(text: str = TEXT) -> Study:
    return parse_study(text, "small", "small.toml")


def start(text: str, store: Path, out: Path | None = None) -> StudyRun:
    """A study on a store, ready to run."""
    plan = plan_study(study(text))
    return StudyRun({"small": plan}, StudyStore(store), {} if out is None else {"small": out})


def results(run: StudyRun) -> StudyResults:
    (found,) = run.results().values()
    return found


class Inline(Executor):
    slots = 2

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[Any], Any], StudyJob, Future[Any]]] = []
        self.done: list[str] = []

    def submit(self, function: Callable[[Any], Any], item: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((function, item, future))
        return future

    def wait(self, seconds: float) -> list[Future[Any]]:
        function, job, future = self.jobs.pop(0)
        self.done.append(job.key)
        future.set_result(function(job))
        return [future]

    def close(self) -> None:
        pass
