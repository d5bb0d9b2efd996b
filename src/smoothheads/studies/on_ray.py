"""Jobs of a study on a Ray cluster. A node needs the data and nothing of the store: it is sent what a job
starts from, and what the job writes is brought back while it runs, so that another node can go on with it.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from smoothheads.errors import HeldError, SmoothheadsError, WorkerError
from smoothheads.files import LOCK, is_partial, write_atomic
from smoothheads.runs.executors import ONE_THREAD, Executor, Future, ProcessExecutor
from smoothheads.runs.on_ray import MOST_LOSSES, Cluster, Need, last_line, nodes, require_room
from smoothheads.studies.jobs import ELSEWHERE, STOP_SECONDS, StudyJob, perform
from smoothheads.studies.plan import Item, Joining, Training
from smoothheads.studies.store import DONE, StudyStore

LOOK_SECONDS: Final = 10.0  # after which a node hands over what is new
MEMORY: Final = 500 * 2**20  # bytes that a job takes at least

Files = dict[str, bytes]
"""Contents by paths below the store, in the order in which they were written."""


class SyncedFiles(NamedTuple):
    """Files that a job wrote and removed since the last look."""

    files: Files
    removed: list[str]
    finished: bool = False
    error: str | None = None


class JobActor:
    """Runs one job on a node, in a process and a folder of its own."""

    def start(self, item: Item, files: Files, folder: str) -> None:
        """Starts the job in a process.

        Args:
            item: What to make.
            files: What it is made from, and what was made of it before.
            folder: The working folder of the driver.
        """
        # Relative paths in settings mean what they mean to the driver, if its folder is there.
        with suppress(OSError):
            os.chdir(folder)
        self._root = Path(tempfile.mkdtemp(prefix="smoothheads-"))
        self._folder = StudyStore(self._root).folder(item)
        write_files(self._root, files)
        self._sent = _stamps(self._folder)
        self._executor = ProcessExecutor(1, STOP_SECONDS, ONE_THREAD)
        self._future = self._executor.submit(perform, StudyJob(item, StudyStore(self._root)))

    def look(self, seconds: float) -> SyncedFiles:
        """Returns what is new, after so many seconds or when the job has ended."""
        if not self._executor.wait(seconds):
            return SyncedFiles(*self._changes())
        files, removed = self._changes()
        error = self._future.exception() or self._future.result()
        return SyncedFiles(files, removed, True, f"on {socket.gethostname()}: {error}" if error else None)

    def stop(self) -> SyncedFiles:
        """Ends the job. A training saves its state first."""
        self._executor.close()
        return SyncedFiles(*self._changes())

    def clean(self) -> None:
        self._executor.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def _changes(self) -> tuple[Files, list[str]]:
        """Returns the folder as it was at one moment, as a crash at that moment would have left it."""
        while True:
            stamps = _stamps(self._folder)
            new = [path for path, stamp in stamps.items() if self._sent.get(path) != stamp]
            with suppress(FileNotFoundError):
                files = {
                    path.relative_to(self._root).as_posix(): path.read_bytes()
                    for path in sorted(new, key=lambda path: stamps[path])
                }
                # A file that changed while others were read: read all of them again.
                if _stamps(self._folder) == stamps:
                    break
        removed = [path.relative_to(self._root).as_posix() for path in self._sent.keys() - stamps.keys()]
        self._sent = stamps
        return files, removed


@dataclass(eq=False)
class _Running:
    """A job on its way: its actor, and the lock on its item here, where the store is."""

    job: StudyJob
    future: Future[str | None]
    lock: ExitStack
    actor: Any = None
    losses: int = 0
    """How many actors were lost since something was brought back."""


class RayJobs(Executor):
    """Runs jobs of a study with the cores and GPUs that their settings ask for."""

    def __init__(self, cluster: Cluster) -> None:
        self._exit, self._most = ExitStack(), cluster.cores
        self._ray = self._exit.enter_context(cluster.connected())
        self._running: dict[Any, _Running] = {}  # by Ray's reference to the next look
        self._ended: list[Future[Any]] = []

    @property
    def slots(self) -> int:
        return self._most or max(1, int(sum(node.cores for node in nodes(self._ray))))  # nodes may join

    def submit(self, function: Callable[[Any], Any], item: Any) -> Future[Any]:
        assert function is perform, "what is brought back is what a study's job writes"
        running = _Running(item, Future(), ExitStack())
        try:
            # The item is held here as long as any node makes it.
            running.lock.enter_context(item.store.lock(item.item))
            require_room(self._ray, _need(item.item))
            self._start(running)
        except HeldError:
            self._end(running, ELSEWHERE)
        except SmoothheadsError as error:
            self._end(running, error)
        return running.future

    def wait(self, seconds: float) -> list[Future[Any]]:
        if not self._ended and self._running:
            looks = list(self._running)
            # Wait for the first look to come back, then take all that have.
            first, _ = self._ray.wait(looks, num_returns=1, timeout=seconds)
            for look in first and self._ray.wait(looks, num_returns=len(looks), timeout=0)[0]:
                self._receive(look)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        try:
            # What was reached is brought back first.
            stopped = [(each.actor.stop.remote(), each) for each in self._running.values()]
            deadline = time.monotonic() + STOP_SECONDS + LOOK_SECONDS
            for answer, running in stopped:
                with suppress(self._ray.exceptions.RayError):
                    synced = self._ray.get(answer, timeout=max(0.1, deadline - time.monotonic()))
                    _bring_back(running.job.store.root, synced)
                self._ray.kill(running.actor)
        finally:
            for running in self._running.values():
                running.lock.close()
            self._running = {}
            self._exit.close()

    def _start(self, running: _Running) -> None:
        """Starts the job from what the store has of it."""
        item, store = running.job.item, running.job.store
        # The networks that it needs, and what was made of the item before: it goes on from there.
        folders = [*(store.checkpoint(each) for each in item.needs), store.folder(item)]
        files = {
            path.relative_to(store.root).as_posix(): path.read_bytes()
            for folder in folders
            for path in _stamps(folder)
        }
        running.actor = self._ray.remote(JobActor).options(max_restarts=0, **_need(item).options).remote()
        running.actor.start.remote(item, files, os.getcwd())
        self._running[running.actor.look.remote(LOOK_SECONDS)] = running

    def _receive(self, look: Any) -> None:
        """Brings back what a job wrote; then asks for more, ends the job, or starts it on another node."""
        running = self._running.pop(look)
        try:
            synced: SyncedFiles = self._ray.get(look)
        except self._ray.exceptions.RayTaskError as error:  # our own code failed in the actor
            self._end(running, WorkerError(last_line(error)))
            return
        except self._ray.exceptions.RayError as error:  # the node or the actor is lost
            running.losses += 1
            if running.losses < MOST_LOSSES:
                self._start(running)
            else:
                why = str(error).strip().partition("\n")[0]
                self._end(running, WorkerError(f"Its worker was lost {MOST_LOSSES} times ({why})."))
            return
        _bring_back(running.job.store.root, synced)
        if synced.finished:
            # The node forgets the job before its actor ends.
            with suppress(self._ray.exceptions.RayError):
                self._ray.get(running.actor.clean.remote())
            self._ray.kill(running.actor)
            self._end(running, WorkerError(synced.error) if synced.error else None)
            return
        running.losses = 0 if synced.files else running.losses
        self._running[running.actor.look.remote(LOOK_SECONDS)] = running

    def _end(self, running: _Running, outcome: str | SmoothheadsError | None) -> None:
        """Releases the item and sets the caller's future."""
        running.lock.close()
        if isinstance(outcome, SmoothheadsError):
            running.future.set_exception(outcome)
        else:
            running.future.set_result(outcome)
        self._ended.append(running.future)


def _need(item: Item) -> Need:
    """Returns the cores and GPUs of a job; joining networks needs one core."""
    if isinstance(item, Joining):
        return Need(1, 0, MEMORY)
    settings = item.config.train if isinstance(item, Training) else item.config
    return Need(settings.threads, int(settings.device.startswith("cuda")), MEMORY)


def _bring_back(root: Path, synced: SyncedFiles) -> None:
    write_files(root, synced.files)
    for path in synced.removed:
        (root / path).unlink(missing_ok=True)


def write_files(root: Path, files: Files) -> None:
    """Writes them in the order in which they were written on the node, that the job is done last of all."""
    for path in sorted(files, key=lambda path: path.endswith(f"/{DONE}")):
        write_atomic(root / path, files[path])


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Returns time and size of each file below a folder, without locks and partial files."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and path.name != LOCK and not is_partial(path):
                status = path.stat()
                found[path] = status.st_mtime_ns, status.st_size
    return found
