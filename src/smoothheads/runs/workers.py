"""Images shared out among processes; what comes back stands in order, as from one process."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

import numpy as np

from smoothheads.certify.engines import Work, work_of
from smoothheads.certify.smoothed import Certified, Smoothed
from smoothheads.config import CertifyConfig
from smoothheads.data import DataInfo, Dataset
from smoothheads.data.subset import take
from smoothheads.errors import ConfigError, SmoothheadsError
from smoothheads.models.multihead import MultiHead

WINDOW: Final = 8  # groups per worker that may be ahead of the one that the ledger waits for

START_SECONDS: Final = 6.0  # until a worker has loaded everything; measured on two cores

OnWork = Callable[[Work], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker is given; converted networks must lie in `artefacts` already."""

    model: MultiHead
    info: DataInfo
    config: CertifyConfig
    dataset: Dataset
    artefacts: Path | None = None


def worth(seconds: float, images: int, threads: int) -> int:
    """How many workers to share out images among that take one process so many seconds: one for every
    `threads` cores that we may use, or one alone if starting them costs more than they save."""
    most = max(1, min(len(os.sched_getaffinity(0)) // threads, images))
    return most if seconds * (1 - 1 / most) > START_SECONDS else 1


def certify_images(
    job: Job, positions: Sequence[int], workers: int, on_work: OnWork | None = None
) -> Iterator[Certified]:
    """The images at these positions, in this order; at the end `on_work` is told what all workers did. A
    worker gets as many images at a time as a pass has blocks.

    Errors of a worker are raised here. However this process ends, the workers end too.
    """
    data = _pickled(job)
    size = 1 if job.config.blocks_per_pass == "auto" else job.config.blocks_per_pass
    groups = [positions[first : first + size] for first in range(0, len(positions), size)]
    pool: list[_Worker] = []
    try:
        with _deaf_to_ctrl_c():
            pool += [_Worker() for _ in range(min(workers, len(groups)))]
        for worker in pool:
            worker.send(data)
        yield from _in_order(pool, groups)
        if on_work:
            on_work(sum((worker.work for worker in pool), start=Work()))
    finally:
        for worker in pool:
            worker.stop()


class _Worker:
    work = Work()

    def __init__(self) -> None:
        context = get_context("spawn")  # a fork would inherit the locks of OpenMP's threads
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()  # so that the death of the worker is the end of the pipe

    def send(self, message: bytes | Sequence[int]) -> None:
        """First the job, which waits until the worker has started; then positions after positions."""
        try:
            self.connection.send(message)
        except OSError:
            raise self._died() from None

    def answer(self) -> list[Certified]:
        try:
            reply: tuple[list[Certified], Work] | SmoothheadsError = self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if isinstance(reply, SmoothheadsError):
            raise reply
        certified, self.work = reply
        return certified

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


def _in_order(pool: Sequence[_Worker], groups: Sequence[Sequence[int]]) -> Iterator[Certified]:
    idle = list(pool)
    busy: dict[Any, tuple[int, _Worker]] = {}  # by the worker's connection
    waiting = deque(enumerate(groups))
    done: dict[int, list[Certified]] = {}
    first = 0
    while first < len(groups):
        while idle and waiting and waiting[0][0] < first + WINDOW * len(pool):
            order, positions = waiting.popleft()
            worker = idle.pop()
            worker.send(positions)
            busy[worker.connection] = order, worker
        for connection in wait(list(busy)):
            order, worker = busy.pop(connection)
            done[order] = worker.answer()
            idle.append(worker)
        while first in done:
            yield from done.pop(first)
            first += 1


def _work(connection: Connection[Any, Any], parent: int) -> None:
    """A worker's whole life: the job, then positions in and certificates or errors out, until nobody asks
    any more."""

    def while_wanted(_: int) -> None:
        if os.getppid() != parent:  # killed, so that it could not stop us
            sys.exit(1)

    with suppress(EOFError, BrokenPipeError):
        job: Job = pickle.loads(connection.recv())
        smoothed: Smoothed | None = None
        while True:
            positions = connection.recv()
            try:
                smoothed = smoothed or Smoothed(job.model, job.info, job.config, artefacts=job.artefacts)
                images = take(job.dataset, np.array(positions))
                certified = list(smoothed.certify(images, on_votes=while_wanted))
                connection.send((certified, work_of(smoothed.engine)))
            except SmoothheadsError as error:
                connection.send(error)


def _pickled(job: Job) -> bytes:
    """By value: torch's own way between processes needs shared memory, of which containers have little."""
    try:
        return pickle.dumps(job)
    except Exception as error:  # whatever somebody's own module or data set raises
        raise ConfigError("a network that can be sent to workers", str(error), "use one worker") from error


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started inside do not hear Ctrl-C, which goes to the whole group: we stop them ourselves. We
    hear it when the block ends."""
    resource_tracker.ensure_running()  # multiprocessing's own helper; starting it would end our deafness
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
