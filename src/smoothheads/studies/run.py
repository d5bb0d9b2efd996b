"""Runs studies: every job as soon as what it needs is there; a failed job does not stop the others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from smoothheads.device import cores, threads
from smoothheads.errors import SmoothheadsError, duration
from smoothheads.files import exclusive
from smoothheads.studies import results
from smoothheads.studies.plan import Certification, Item, Joining, StudyPlan, Training, join_plans
from smoothheads.studies.results import GapCurve, StudyResults
from smoothheads.studies.spec import Study, read_study
from smoothheads.studies.store import LOG, StudyStore

if TYPE_CHECKING:
    from smoothheads.runs.executors import Executor, Future
    from smoothheads.runs.on_ray import Cluster
    from smoothheads.studies.jobs import StudyJob

State = Literal["done", "failed", "running", "waiting"]
POLL_SECONDS = 2.0
RETRY_SECONDS = 10.0
"""How long to wait before an item that another study is making is tried again."""
STATUS_SECONDS = 30.0
"""Time between two calls of `on_status`, which reads everything on the disk."""
ENOUGH_SECONDS = 3.0
"""Measured work that is enough to extrapolate from."""


_KINDS = {Training: "trainings", Joining: "ensembles", Certification: "certifications"}


@dataclass(frozen=True, slots=True)
class Status:
    """How far a study is."""

    states: Mapping[tuple[str, State], int]
    """How many items of each kind have which state."""
    seconds_left: float
    """Estimated seconds of work that are left, of one process."""

    def count(self, state: State) -> int:
        return sum(count for (_, each), count in self.states.items() if each == state)

    def line(self, workers: int | None = None) -> str:
        """Returns how much is done, and the time left with so many processes, by default one per core."""
        jobs, parts = workers or cores(), []
        for kind in ("trainings", "certifications"):
            total = sum(count for (each, _), count in self.states.items() if each == kind)
            parts.append(f"{kind}: {total}, {self.states.get((kind, 'done'), 0)} of them finished")
        return (
            f"{'; '.join(parts)}; running: {self.count('running')}, failed: {self.count('failed')}; "
            f"about {duration(self.seconds_left / jobs)} left with {jobs} processes"
        )


@dataclass
class StudyRun:
    """One or more studies on one store, as one plan, so that what they share is made once.

    Args:
        plans: The plan of every study, by its name.
        store: Where networks, ledgers and rows are kept.
        folders: The output folder of a study, if its results are to be exported while it runs.
        on_note: Called with remarks for the user.
    """

    plans: Mapping[str, StudyPlan]
    store: StudyStore
    folders: Mapping[str, Path] = field(default_factory=dict)
    on_note: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self.plan, self.plans = join_plans(self.plans)
        for name, folder in self.folders.items():
            results.reserve_folder(folder)
            results.check_nothing_lost(folder, self.plans[name].votes_by_name)
        # Rows of the output folders and of the studies next to them need not be made again, even if the store
        # is gone. A damaged neighbour is not used; a damaged output folder stops the run.
        own = set(self.folders.values())
        neighbours = {path.parent for each in own for path in each.parent.glob(f"*/{results.STUDY_FILE}")}
        for folder in sorted(neighbours - own):
            try:
                self.store.import_rows(folder)
            except SmoothheadsError as error:
                self.on_note(f"The rows of a study next to the output folder are not used: {error}")
        for folder in own:
            if (folder / results.STUDY_FILE).is_file():
                self.store.import_rows(folder)
        self.missing = self.plan.without(self.store.saved_rows())

    def results(self) -> dict[str, StudyResults]:
        return {name: self.store.collect(plan) for name, plan in self.plans.items()}

    def export(self) -> None:
        """Writes what has been made to the output folders, as the store may not outlive the run."""
        for name, folder in self.folders.items():
            with exclusive(folder, wait=True):
                # Somebody else may have exported rows of the same study meanwhile, from another store.
                gaps: dict[str, GapCurve] = {}
                if (folder / results.STUDY_FILE).is_file():
                    gaps = self.store.import_rows(folder).gaps
                results.write_unlocked(replace(self.store.collect(self.plans[name]), gaps=gaps), folder)

    def describe(self, workers: int | None = None) -> str:
        """Returns what the plan needs, what has been made of it, and an estimate of the time, in lines."""
        lines = [f"{self.plan.study.title}: {len(self.plan.rows)} rows, {self.plan.images} images each"]
        if saved := len(self.plan.rows) - len(self.missing.rows):
            lines.append(f"{saved} rows are finished and will not be made again")
        shared = Counter((row.arm, row.aggregation) for row in self.plan.rows if row.certification != row.own)
        for (arm, aggregation), count in shared.items():
            rows = f"{count} row{'s' if count > 1 else ''}"
            lines.append(f"{arm}: {rows} from {aggregation} of another ledger")
        return "\n".join([*lines, self.status().line(workers)])

    def status(self) -> Status:
        """Returns how far the studies are by what is on the disk, perhaps made by another process.

        What has begun counts as running. The time that is left is extrapolated from the epochs and images on
        the disk, those of trainings apart from those of certifications.
        """
        states: Counter[tuple[str, State]] = Counter()
        seconds, measured, left = (dict.fromkeys(_KINDS, 0.0) for _ in range(3))
        for item in self.missing.items:
            kind, work = type(item), item_work(item, self.plan.images)
            fraction, spent = self.store.progress(item)
            if spent:
                measured[kind] += work * fraction
                seconds[kind] += spent
            state: State
            if self.store.facts(item) is not None:
                state = "done"
            elif self.store.failure(item) is not None:
                state = "failed"
            else:
                state = "running" if self.store.artefact(item).exists() else "waiting"
                left[kind] += work * (1 - fraction)
            states[_KINDS[kind], state] += 1
        # A kind of which little has been measured gets the pace of everything, or of two forward passes here.
        total = 0.0
        for kind, work in left.items():
            spent, done = seconds[kind], measured[kind]
            if spent < ENOUGH_SECONDS:
                spent, done = sum(seconds.values()), sum(measured.values())
            total += work * (spent / done if done else self.seconds_per_gmac) if work else 0.0
        return Status(states, total)

    @cached_property
    def seconds_per_gmac(self) -> float:
        """How long a billion multiply-accumulates take here, by two forward passes of one network."""
        import torch

        from smoothheads.data import describe
        from smoothheads.studies.jobs import network_size, untrained

        network = next(item for item in self.missing.items if isinstance(item, Training))
        images = torch.zeros(50, *describe(network.data).shape)
        model = untrained(network.model, network.data).eval()
        with torch.inference_mode(), threads(1):
            model(images)  # the first pass allocates memory
            started = time.perf_counter()
            model(images)
            seconds = time.perf_counter() - started
        return seconds / (len(images) * network_size(network.model, network.data).gmacs)

    def run(
        self,
        workers: int | None = None,
        cluster: Cluster | None = None,
        on_status: Callable[[Status, int], None] | None = None,
    ) -> dict[str, StudyResults]:
        """Makes what is missing and returns the results of every study.

        Args:
            workers: Processes of this machine, with one thread each; all cores by default.
            cluster: The Ray cluster that runs the jobs instead.
            on_status: Called from time to time with the status and the number of jobs at once.
        """
        from smoothheads.runs.executors import ONE_THREAD, ProcessExecutor
        from smoothheads.studies.jobs import STOP_SECONDS

        executor: Executor
        if cluster is None:
            executor = ProcessExecutor(workers or cores(), STOP_SECONDS, ONE_THREAD)
        else:
            from smoothheads.studies.on_ray import RayJobs

            executor = RayJobs(cluster)
        self.run_on(executor, on_status)
        return self.results()

    def run_on(  # noqa: PLR0912
        self, executor: Executor, on_status: Callable[[Status, int], None] | None = None
    ) -> dict[str, str]:
        """Makes what is missing on an executor and closes it; returns the messages of failures by item.

        Waits for items that another study on the same store is making.
        """
        from smoothheads.studies.jobs import ELSEWHERE, StudyJob, perform

        store, failed, retry_at = self.store, dict[str, str](), dict[str, float]()
        work = {item.key: item_work(item, self.plan.images) for item in self.missing.items}
        done = {item.key for item in self.missing.items if store.facts(item) is not None}
        waiting = [item for item in self.missing.longest_first(work).items if item.key not in done]
        for item in waiting:
            store.forget_failure(item)
        running: dict[Future[str | None], StudyJob] = {}
        exported, reported, now = len(done), time.monotonic(), time.monotonic
        with closing(executor):
            while waiting or running:
                # In the order of the plan, start what can be started. An item whose needs failed fails with
                # the same message.
                for item in list(waiting):
                    ready = all(need.key in done for need in item.needs)
                    if broken := [failed[need.key] for need in item.needs if need.key in failed]:
                        failed[item.key] = broken[0]
                        waiting.remove(item)
                    elif len(running) < executor.slots and ready and retry_at.get(item.key, 0) <= now():
                        job = StudyJob(item, store)
                        running[executor.submit(perform, job)] = job
                        waiting.remove(item)
                if waiting and not running:  # everything left is being made elsewhere, or needs that
                    time.sleep(POLL_SECONDS)
                # Note what has ended: well, with a failure, or because another study has the item.
                for future in executor.wait(POLL_SECONDS) if running else ():
                    job = running.pop(future)
                    message = _outcome(future, job)
                    if message is None:
                        done.add(job.key)
                    elif message == ELSEWHERE:
                        waiting.append(job.item)
                        retry_at[job.key] = now() + RETRY_SECONDS
                    else:
                        failed[job.key] = message
                # From time to time: say how far it is, and export new rows.
                if now() - reported >= STATUS_SECONDS:
                    reported = now()
                    if on_status is not None:
                        on_status(self.status(), executor.slots)
                    if len(done) > exported:
                        exported = len(done)
                        self.export()
        return failed


def run(
    study: Study | Path | str,
    *,
    store: Path | str = "runs",
    out: Path | str | None = None,
    root: str | None = None,
    workers: int | None = None,
    cluster: Cluster | None = None,
    on_status: Callable[[Status, int], None] | None = None,
) -> StudyResults:
    """Trains and certifies everything that a study still lacks, and returns its results.

    Args:
        study: A study, or the path of a study file.
        store: The folder for networks, ledgers and rows of all studies; nothing in it is made twice.
        out: A folder to export the results to.
        root: Where the data set lies, if not where the study says.
        workers: Processes, with one thread each; all cores by default.
        cluster: A Ray cluster that runs the jobs instead.
        on_status: Called from time to time with the status and the number of jobs at once.
    """
    study = study if isinstance(study, Study) else read_study(study)
    started = start({study.name: study.at(root)}, store, {study.name: Path(out)} if out is not None else {})
    found = started.run(workers, cluster, on_status)
    started.export()
    return found[study.name]


def start(
    studies: Mapping[str, Study],
    store: Path | str,
    folders: Mapping[str, Path] | None = None,
    on_note: Callable[[str], None] = lambda _: None,
) -> StudyRun:
    """Plans studies on their data without running anything; results are exported to `folders` by name."""
    from smoothheads.studies.jobs import plan_study

    plans = {name: plan_study(study) for name, study in studies.items()}
    return StudyRun(plans, StudyStore(Path(store)), folders or {}, on_note)


def item_work(item: Item, images: int) -> float:
    """Returns the arithmetic of an item in billions of multiply-accumulates."""
    from smoothheads.studies.jobs import network_size, training_images

    match item:
        case Training(config=config):
            method = config.objective.method
            # A backward pass costs about two forward passes; attacks repeat both for every step.
            steps = getattr(method, "attack_steps", getattr(method, "steps", 0))
            passes = 3 * method.draws * (1 + steps) * config.train.epochs * training_images(config.data)
            return network_size(config.model, config.data).gmacs * passes
        case Certification(network=network, config=config):
            samples = images * config.plan.typical_samples
            return network_size(network.model, network.data).gmacs * samples
        case _:
            return 0.0


def _outcome(future: Future[str | None], job: StudyJob) -> str | None:
    """Returns None, or the message of the failure; a worker that died leaves none in the store itself."""
    error = future.exception()
    if error is None:
        return future.result()
    log = (job.store.folder(job.item) / LOG).relative_to(job.store.root).as_posix()
    message = f"{error} See {log} in the store."
    job.store.fail(job.item, message)
    return message
