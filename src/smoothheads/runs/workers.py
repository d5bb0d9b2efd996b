"""Images shared out among processes; what comes back stands in order, as from one process."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

import numpy as np

from smoothheads.certify.smoothed import Certified, Smoothed
from smoothheads.config import CertifyConfig
from smoothheads.data import DataInfo, Dataset
from smoothheads.data.subset import take
from smoothheads.errors import ConfigError, SmoothheadsError
from smoothheads.models.multihead import MultiHead

WINDOW: Final = 8  # images per worker that may be ahead of the one that the ledger waits for


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker is given; converted networks must lie in `artefacts` already."""

    model: MultiHead
    info: DataInfo
    config: CertifyConfig
    dataset: Dataset
    artefacts: Path | None = None


def certify_images(job: Job, positions: Sequence[int], workers: int) -> Iterator[Certified]:
    """The images at these positions, in this order.

    Errors of a worker are raised here. However this process ends, the workers end too.
    """
    data = _pickled(job)
    pool: list[_Worker] = []
    try:
        with _deaf_to_ctrl_c():
            pool += [_Worker(data) for _ in range(min(workers, len(positions)))]
        yield from _in_order(pool, positions)
    finally:
        for worker in pool:
            worker.stop()


class _Worker:
    def __init__(self, data: bytes) -> None:
        context = get_context("spawn")  # a fork would inherit the locks of OpenMP's threads
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, data, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()  # so that the death of the worker is the end of the pipe

    def ask(self, position: int) -> None:
        try:
            self.connection.send(position)
        except OSError:
            raise self._died() from None

    def answer(self) -> Certified:
        try:
            reply: Certified | SmoothheadsError = self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if isinstance(reply, SmoothheadsError):
            raise reply
        return reply

    def stop(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join()

    def _died(self) -> SmoothheadsError:
        self._process.join(1)
        return SmoothheadsError(
            "workers that live",
            f"one that ended with code {self._process.exitcode}",
            "lower workers if memory ran out; run again to go on",
        )


def _in_order(pool: Sequence[_Worker], positions: Sequence[int]) -> Iterator[Certified]:
    idle = list(pool)
    busy: dict[Any, tuple[int, _Worker]] = {}  # by the worker's connection
    waiting = deque(enumerate(positions))
    done: dict[int, Certified] = {}
    first = 0
    while first < len(positions):
        while idle and waiting and waiting[0][0] < first + WINDOW * len(pool):
            order, position = waiting.popleft()
            worker = idle.pop()
            worker.ask(position)
            busy[worker.connection] = order, worker
        for connection in wait(list(busy)):
            order, worker = busy.pop(connection)
            done[order] = worker.answer()
            idle.append(worker)
        while first in done:
            yield done.pop(first)
            first += 1


def _work(connection: Connection[Any, Any], data: bytes, parent: int) -> None:
    """A worker's whole life: positions in, certificates or errors out, until nobody asks any more."""

    def while_wanted(_: int) -> None:
        if os.getppid() != parent:  # killed, so that it could not stop us
            sys.exit(1)

    certified = None
    while True:
        try:
            position = connection.recv()
        except EOFError:
            return
        reply: Certified | SmoothheadsError
        try:
            certified = certified or _certifier(data)
            reply = certified(position, while_wanted)
        except SmoothheadsError as error:
            reply = error
        connection.send(reply)


def _certifier(data: bytes) -> Any:
    job: Job = pickle.loads(data)
    smoothed = Smoothed(job.model, job.info, job.config, artefacts=job.artefacts)

    def certified(position: int, on_votes: Any) -> Certified:
        return next(smoothed.certify(take(job.dataset, np.array([position])), on_votes=on_votes))

    return certified


def _pickled(job: Job) -> bytes:
    """By value: torch's own way between processes needs shared memory, of which containers have little."""
    try:
        return pickle.dumps(job)
    except Exception as error:  # whatever somebody's own module or data set raises
        raise ConfigError("a network that can be sent to workers", str(error), "use one worker") from error


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started inside do not hear Ctrl-C, which goes to the whole group; we stop them ourselves."""
    if threading.current_thread() is not threading.main_thread():  # handlers cannot be set elsewhere
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
