"""A study on a real cluster: what is brought back is what local processes make, also when a node is lost."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ray.conftest import TwoNodes, descendants
from tests.studies.small import TEXT, Inline, study

from smoothheads.data import named
from smoothheads.errors import WorkerError
from smoothheads.runs.executors import Executor, Future
from smoothheads.runs.on_ray import Cluster
from smoothheads.studies import on_ray
from smoothheads.studies.jobs import ELSEWHERE, StudyJob, perform, plan_study
from smoothheads.studies.on_ray import JobActor, RayJobs, SyncedFiles
from smoothheads.studies.plan import StudyPlan, Training
from smoothheads.studies.run import StudyRun
from smoothheads.studies.store import StudyStore
from smoothheads.studies.tables import all_tables

LONG = TEXT.replace("epochs = 1", "epochs = 30").replace("seeds = [0, 1]", "seeds = [0]")
LONG = LONG.split("[arms.pair]")[0] + "[certify]" + LONG.split("[certify]")[1]
"""One arm whose training takes a while."""


def training(plan: StudyPlan) -> Training:
    return next(item for item in plan.items if isinstance(item, Training))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyPlan, StudyStore]:
    """The study as one process makes it."""
    plan = plan_study(study(LONG))
    store = StudyStore(tmp_path_factory.mktemp("alone"))
    assert StudyRun({"small": plan}, store).run_on(Inline()) == {}
    return plan, store


def require_same(plan: StudyPlan, ours: StudyStore, theirs: StudyStore) -> None:
    tables = [all_tables(store.collect(plan)) for store in (ours, theirs)]
    assert tables[0] == tables[1]
    for item in plan.items:
        facts = [store.facts(item) or {} for store in (ours, theirs)]
        assert facts[0].get("weights") == facts[1].get("weights")
        names = [
            {path.relative_to(store.folder(item)).as_posix() for path in store.folder(item).rglob("*")}
            for store in (ours, theirs)
        ]
        locks = {".lock", "run/.lock", "ledger/.lock", "output.txt"}
        assert names[0] - locks == names[1] - locks


def test_a_lost_worker_costs_little_and_changes_nothing(
    cluster: TwoNodes, tmp_path: Path, alone: tuple[StudyPlan, StudyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "LOOK_SECONDS", 0.2)
    plan, whole = alone
    store, tasks = StudyStore(tmp_path / "store"), RayJobs(Cluster())
    killed: list[int] = []

    class Killing(Executor):
        """Kills the first worker as soon as something of it was brought back."""

        slots = property(lambda _: tasks.slots)

        def submit(self, function: Any, item: Any) -> Future[Any]:
            return tasks.submit(function, item)

        def close(self) -> None:
            tasks.close()

        def wait(self, seconds: float) -> Any:
            ended = tasks.wait(seconds)
            metrics = store.artefact(training(plan)) / "metrics.jsonl"
            if not killed and not ended and metrics.is_file() and metrics.stat().st_size:
                there = descendants(os.getpid()).items()
                killed.extend(each for each, command in there if command.startswith("ray::JobActor"))
                os.kill(killed[0], signal.SIGKILL)
            return ended

    assert StudyRun({"small": plan}, store).run_on(Killing()) == {}
    assert killed
    require_same(plan, store, whole)


def news(actor: JobActor, files: dict[str, bytes], *, until: str = "") -> SyncedFiles:
    """All that a job writes until a file is there, or to its end."""
    while True:
        found = actor.look(0.1)
        files |= found.files
        for path in found.removed:
            del files[path]
        if found.finished or (until and any(path.endswith(until) for path in files)):
            return found


def test_training_goes_on_elsewhere_from_what_was_brought_back(
    tmp_path: Path, alone: tuple[StudyPlan, StudyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Ray: two actors, one after the other, as on two nodes that share no folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    plan, whole = alone
    item, files = training(plan), dict[str, bytes]()
    first, second = JobActor(), JobActor()
    first.start(item, {}, str(tmp_path))
    news(first, files, until="metrics.jsonl")
    while not files[next(path for path in files if path.endswith("metrics.jsonl"))]:
        files |= first.look(0.1).files
    last = first.stop()  # as Ctrl-C does: the state is saved
    files |= last.files
    first.clean()
    state = [path for path in files if path.endswith("state.safetensors")]
    assert len(state) == 1
    second.start(item, files, str(tmp_path))
    assert news(second, files).error is None
    second.clean()
    on_ray.write_files(tmp_path / "store", files)
    facts = [store.facts(item) or {} for store in (StudyStore(tmp_path / "store"), whole)]
    assert facts[0]["weights"] == facts[1]["weights"]
    lines = [
        store.artefact(item).joinpath("metrics.jsonl").read_text()
        for store in (StudyStore(tmp_path / "store"), whole)
    ]
    assert [text.count("\n") for text in lines] == [30, 30]


def test_what_another_study_is_making_is_not_made_on_ray_too(
    cluster: TwoNodes, tmp_path: Path, alone: tuple[StudyPlan, StudyStore]
) -> None:
    """And what is made on Ray not by another study beside it; without the lock both write to one folder."""
    job = StudyJob(training(alone[0]), StudyStore(tmp_path))
    tasks = RayJobs(Cluster())
    with job.store.lock(job.item):
        refused = tasks.submit(perform, job)
        assert tasks.wait(1) == [refused]
        assert refused.result() == ELSEWHERE
    tasks.submit(perform, job)
    assert perform(job) == ELSEWHERE
    tasks.close()
    assert job.store.facts(job.item) is None
    assert perform(job) is None


def test_a_job_that_fits_nowhere_fails_alone(
    cluster: TwoNodes, tmp_path: Path, alone: tuple[StudyPlan, StudyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "MEMORY", 2**50)
    plan, _ = alone
    tasks = RayJobs(Cluster())
    future = tasks.submit(perform, StudyJob(training(plan), StudyStore(tmp_path)))
    assert tasks.wait(1) == [future]
    tasks.close()
    with pytest.raises(WorkerError, match="no node has that"):
        future.result()


def test_a_node_without_the_data_is_named(
    cluster: TwoNodes, tmp_path: Path, alone: tuple[StudyPlan, StudyStore]
) -> None:
    item = training(alone[0])
    elsewhere = replace(item.config, data=named("cifar10", root=str(tmp_path / "nowhere")))
    tasks = RayJobs(Cluster())
    future = tasks.submit(perform, StudyJob(replace(item, config=elsewhere), StudyStore(tmp_path)))
    while not tasks.wait(1):
        pass
    tasks.close()
    with pytest.raises(WorkerError, match=f"on {socket.gethostname()}: .*nowhere"):
        future.result()
