"""Who does the jobs. An executor needs three methods; here are processes of this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any, NamedTuple, Protocol

from smoothheads.device import environment
from smoothheads.studies.jobs import StudyJob, perform
from smoothheads.studies.store import LOG

STOP_SECONDS = 60.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""Libraries read these when the process starts."""


class Finished(NamedTuple):
    job: StudyJob
    error: str | None


class Executor(Protocol):
    """Jobs that are submitted do not depend on each other; they may end in any order."""

    @property
    def slots(self) -> int:
        """How many jobs can run at once."""
        ...

    def submit(self, job: StudyJob) -> None: ...

    def wait(self, seconds: float) -> list[Finished]:
        """Those that ended, as soon as there is one; none if there was none for so long."""
        ...

    def close(self) -> None:
        """Ends what still runs; it can be gone on with."""
        ...


class LocalProcesses:
    """Processes that take one job after another, each with one thread; they end when this process ends,
    however it does."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._idle: list[_Worker] = []
        self._busy: dict[Any, _Worker] = {}  # by the connection

    def submit(self, job: StudyJob) -> None:
        worker = self._idle.pop() if self._idle else _Worker()
        worker.start(job)
        self._busy[worker.connection] = worker

    def wait(self, seconds: float) -> list[Finished]:
        return [self._finished(connection) for connection in wait(list(self._busy), seconds)]

    def close(self) -> None:
        workers = [*self._idle, *self._busy.values()]
        for worker in workers:
            worker.process.terminate()  # training saves its state first
        deadline = time.monotonic() + STOP_SECONDS
        for worker in workers:
            worker.process.join(max(0.1, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join()
        self._idle, self._busy = [], {}

    def _finished(self, connection: Any) -> Finished:
        worker = self._busy.pop(connection)
        job = worker.job
        try:
            error: str | None = connection.recv()
            self._idle.append(worker)
        except (EOFError, OSError):
            worker.process.join()
            log = (job.store.folder(job.item) / LOG).relative_to(job.store.root).as_posix()
            error = f"its process ended with code {worker.process.exitcode}; see {log} in the store"
            job.store.fail(job.item, error)
        return Finished(job, error)


class _Worker:
    job: StudyJob

    def __init__(self) -> None:
        context = get_context("spawn")  # a fork would inherit the locks of OpenMP's threads
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, os.getpid()))
        with environment(ONE_THREAD):
            self.process.start()
        theirs.close()  # so that the death of the worker is the end of the pipe

    def start(self, job: StudyJob) -> None:
        self.job = job
        self.connection.send(job)


def _work(connection: Any, parent: int) -> None:
    """A worker's whole life: jobs in, messages of failures or none out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent ends us
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            job: StudyJob = connection.recv()
            folder = job.store.folder(job.item)
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / LOG).open("a") as log, redirect_stdout(log), redirect_stderr(log):
                connection.send(perform(job))


def _end_with(parent: int) -> None:
    """However the parent ended, nobody waits for us any more; what is done is on the disk."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
