"""Jobs of a study on a Ray cluster. A node needs the data and nothing of the store: it is sent what a job
starts from, and what the job writes is brought back while it runs, so that another node can go on with it.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from smoothheads.errors import HeldError, SmoothheadsError
from smoothheads.files import LOCK, is_partial, write_atomic
from smoothheads.runs.cluster import Cluster, Need, nodes, require_room
from smoothheads.studies.executor import STOP_SECONDS, Finished, LocalProcesses
from smoothheads.studies.jobs import ELSEWHERE, StudyJob, network_folder
from smoothheads.studies.plan import Certification, Item, Training, needs
from smoothheads.studies.store import DONE, StudyStore

LOOK_SECONDS: Final = 10.0  # after which a node hands over what is new
MEMORY: Final = 500 * 2**20  # bytes that a job takes at least
MOST_LOSSES: Final = 10  # times that a job is given to another node before it counts as failed

Files = dict[str, bytes]
"""By their paths below the store, in the order in which they were written."""


class Brought(NamedTuple):
    """What a job wrote since it was looked at last, and whether it has ended."""

    files: Files
    gone: list[str]
    finished: bool = False
    error: str | None = None
    """What went wrong, and where."""


class Maker:
    """On a node: one job, in a process and a folder of its own."""

    def start(self, item: Item, files: Files, folder: str) -> None:
        """Relative paths in settings mean what they mean to the driver, if its folder is there."""
        with suppress(OSError):
            os.chdir(folder)
        self._root = Path(tempfile.mkdtemp(prefix="smoothheads-"))
        self._folder = StudyStore(self._root).folder(item)
        _write(self._root, files)
        self._sent = _stamps(self._folder)
        self._processes = LocalProcesses(1)
        self._processes.submit(StudyJob(item, StudyStore(self._root)))

    def look(self, seconds: float) -> Brought:
        ended = self._processes.wait(seconds)
        files, gone = self._changed()
        error = f"on {socket.gethostname()}: {ended[0].error}" if ended and ended[0].error else None
        return Brought(files, gone, bool(ended), error)

    def stop(self) -> Brought:
        """Training saves its state first."""
        self._processes.close()
        return Brought(*self._changed())

    def clean(self) -> None:
        self._processes.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def _changed(self) -> tuple[Files, list[str]]:
        """As everything stood at one moment, which is what a crash at that moment would have left."""
        while True:
            stamps = _stamps(self._folder)
            new = [path for path, stamp in stamps.items() if self._sent.get(path) != stamp]
            with suppress(FileNotFoundError):
                files = {
                    path.relative_to(self._root).as_posix(): path.read_bytes()
                    for path in sorted(new, key=lambda path: stamps[path])
                }
                if _stamps(self._folder) == stamps:
                    break
        gone = [path.relative_to(self._root).as_posix() for path in self._sent.keys() - stamps.keys()]
        self._sent = stamps
        return files, gone


@dataclass(eq=False, slots=True)
class _Running:
    job: StudyJob
    actor: Any
    losses: int = 0


class RayTasks:
    """An executor whose jobs have the cores and GPUs that their settings want."""

    def __init__(self, cluster: Cluster) -> None:
        self._exit, self._most = ExitStack(), cluster.cores
        self._ray = self._exit.enter_context(cluster.connected())
        self._running: dict[Any, _Running] = {}  # by what is asked
        self._refused: list[Finished] = []
        self._held: dict[str, ExitStack] = {}  # by the item's key

    @property
    def slots(self) -> int:
        """One per core, also of nodes that joined."""
        return self._most or max(1, int(sum(node.cores for node in nodes(self._ray))))

    def submit(self, job: StudyJob) -> None:
        """Its item is held here, where the store is, as long as it is made on any node."""
        held = ExitStack()
        try:
            held.enter_context(job.store.held(job.item))
        except HeldError:
            self._refused.append(Finished(job, ELSEWHERE))
            return
        self._held[job.key] = held
        try:
            require_room(self._ray, _need(job.item))
        except SmoothheadsError as error:
            self._refused.append(self._ended(job, str(error)))
        else:
            self._start(job, 0)

    def wait(self, seconds: float) -> list[Finished]:
        ended, self._refused = self._refused, []
        if ended or not self._running:
            return ended
        asked = list(self._running)
        first, _ = self._ray.wait(asked, num_returns=1, timeout=seconds)
        for reference in first and self._ray.wait(asked, num_returns=len(asked), timeout=0)[0]:
            ended += self._heard(reference)
        return ended

    def close(self) -> None:
        """What was reached is brought back first."""
        try:
            stopped = [(each.actor.stop.remote(), each) for each in self._running.values()]
            deadline = time.monotonic() + STOP_SECONDS + LOOK_SECONDS
            for reference, running in stopped:
                with suppress(self._ray.exceptions.RayError):
                    news = self._ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
                    _bring(running.job.store.root, news)
                self._ray.kill(running.actor)
            self._running = {}
        finally:
            for held in self._held.values():
                held.close()
            self._held = {}
            self._exit.close()

    def _start(self, job: StudyJob, losses: int) -> None:
        actor = self._ray.remote(Maker).options(max_restarts=0, **_need(job.item).options).remote()
        actor.start.remote(job.item, _sent(job), os.getcwd())
        self._running[actor.look.remote(LOOK_SECONDS)] = _Running(job, actor, losses)

    def _heard(self, reference: Any) -> list[Finished]:
        running = self._running.pop(reference)
        job = running.job
        try:
            news: Brought = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return [self._ended(job, str(error).strip().splitlines()[-1])]
        except self._ray.exceptions.RayError as error:
            if running.losses + 1 >= MOST_LOSSES:
                reason = str(error).strip().partition("\n")[0]
                return [self._ended(job, f"its worker was lost {MOST_LOSSES} times: {reason}")]
            self._start(job, running.losses + 1)
            return []
        _bring(job.store.root, news)
        if not news.finished:
            losses = 0 if news.files else running.losses
            self._running[running.actor.look.remote(LOOK_SECONDS)] = _Running(job, running.actor, losses)
            return []
        with suppress(self._ray.exceptions.RayError):
            self._ray.get(running.actor.clean.remote())
        self._ray.kill(running.actor)
        return [self._ended(job, news.error)]

    def _ended(self, job: StudyJob, error: str | None) -> Finished:
        if error is not None:
            job.store.fail(job.item, error)
        self._held.pop(job.key).close()
        return Finished(job, error)


def _need(item: Item) -> Need:
    match item:
        case Training(config=config):
            threads, device = config.train.threads, config.train.device
        case Certification(config=config):
            threads, device = config.engine.threads, config.device
        case _:
            threads, device = 1, "cpu"
    return Need(threads, int(device.startswith("cuda")), MEMORY)


def _sent(job: StudyJob) -> Files:
    """The networks that a job needs, and what it has written so far."""
    root = job.store.root
    networks = [each for each in needs(job.item) if not isinstance(each, Certification)]
    folders = [*(network_folder(each, job.store) for each in networks), job.store.folder(job.item)]
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for folder in folders for path in _stamps(folder)
    }


def _bring(root: Path, news: Brought) -> None:
    """In the order in which it was written, that it is done last of all."""
    _write(root, news.files)
    for path in news.gone:
        (root / path).unlink(missing_ok=True)


def _write(root: Path, files: Files) -> None:
    for path in sorted(files, key=lambda path: path.endswith(f"/{DONE}")):
        write_atomic(root / path, files[path])


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """When each file below a folder was written and how long it is; locks and unfinished files apart."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and path.name != LOCK and not is_partial(path):
                status = path.stat()
                found[path] = status.st_mtime_ns, status.st_size
    return found
