"""Images shared out among processes; what comes back stands in order, as from one process."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Thread
from typing import Any, Final, Literal

import numpy as np

from smoothheads import device as devices
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import Store, Work, work_of
from smoothheads.data import DataInfo, Dataset, take
from smoothheads.errors import ConfigError, SmoothheadsError, WorkerError
from smoothheads.models.multihead import MultiHead
from smoothheads.smoothed import Smoothed
from smoothheads.types import Certified

WINDOW: Final = 8  # groups per worker that may be ahead of the one that the ledger waits for

START_SECONDS: Final = 6.0  # until a worker has loaded everything; measured on two cores

TICK: Final = 1.0  # seconds after which we look whether a worker has gone silent
FIRST_SIGN: Final = 900.0  # seconds that a worker may take to load everything and compile the network
LOADED: Final = 2  # signs: one when it has started, one after its first passes
SILENCE: Final = 120.0  # seconds from then on,
SLOWEST: Final = 20  # or so often the longest silence so far, whichever is longer

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
    most = max(1, min(devices.cores() // threads, images))
    return most if seconds * (1 - 1 / most) > START_SECONDS else 1


def certify_images(
    job: Job, positions: Sequence[int], workers: int, on_work: OnWork | None = None
) -> Iterator[Certified]:
    """The images at these positions, in this order; at the end `on_work` is told what all workers did. A
    worker gets as many images at a time as a pass has blocks, or its share if that is less.

    Errors of a worker are raised here, WorkerError if one died or fell silent. However this process ends,
    the workers end too.
    """
    data = _pickled(job)
    groups = _shared_out(positions, job.config.engine.blocks_per_pass, workers)
    pool: list[_Worker] = []
    try:
        with _deaf_to_ctrl_c():
            pool += [_Worker(data) for _ in range(min(workers, len(groups)))]
        yield from _in_order(pool, groups)
        if on_work:
            on_work(sum((worker.work for worker in pool), start=Work()))
    finally:
        for worker in pool:
            worker.stop()


def _shared_out(
    positions: Sequence[int], blocks_per_pass: int | Literal["auto"], workers: int
) -> list[Sequence[int]]:
    share = -(-len(positions) // workers)
    size = 1 if blocks_per_pass == "auto" else max(1, min(blocks_per_pass, share))
    return [positions[first : first + size] for first in range(0, len(positions), size)]


class _Worker:
    """One process. It gives a sign of life when it has started and after every few passes, so that one that
    was stopped or hangs is told from one that has much to do."""

    work = Work()
    group: int | None = None
    """The one that it works on; none: it is idle, or has not started."""

    def __init__(self, job: bytes) -> None:
        context = get_context("spawn")  # a fork would inherit the locks of OpenMP's threads
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()  # so that the death of the worker is the end of the pipe
        self._job: bytes | None = job
        self._signs, self._silent, self._longest = 0, 0.0, 0.0

    @property
    def idle(self) -> bool:
        """It has started, and so listens, and has nothing to do."""
        return self._signs > 0 and self.group is None

    def give(self, group: int, positions: Sequence[int]) -> None:
        """Only to one that is idle."""
        try:
            if self._job is not None:
                self.connection.send(self._job)
                self._job = None
            self.connection.send(positions)
        except OSError:
            raise self._died() from None
        self.group = group

    def hear(self) -> list[Certified] | None:
        """What it has to say: the certificates of its group, or none as long as it is at work."""
        try:
            reply: tuple[list[Certified], Work] | SmoothheadsError | None = self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if self._signs >= LOADED:
            self._longest = max(self._longest, self._silent)
        self._signs, self._silent = self._signs + 1, 0.0
        if isinstance(reply, SmoothheadsError):
            raise reply
        if reply is None:
            return None
        self.group, (certified, self.work) = None, reply
        return certified

    def waited(self, seconds: float) -> None:
        """Raises WorkerError when a worker that should be at work has been silent for too long."""
        if self.idle:
            return
        self._silent += seconds
        limit = max(SILENCE, SLOWEST * self._longest) if self._signs >= LOADED else FIRST_SIGN
        if self._silent > limit:
            raise WorkerError(
                f"a sign of life from worker process {self._process.pid} within {limit:.0f} s",
                "none: it was stopped, hangs, or waits for memory",
                "run the same command again to go on; fewer workers need less memory",
            )

    def stop(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join(1)
        if self._process.exitcode is None:  # stopped, or deaf
            self._process.kill()
            self._process.join()

    def _died(self) -> WorkerError:
        self._process.join(1)
        code = self._process.exitcode
        how = "ended by itself" if code is None or code >= 0 else f"was ended by {_signal_name(-code)}"
        memory = code == -9
        return WorkerError(
            "worker processes that live until their images are certified",
            f"one that {how} (exit code {code})",
            ("the system does that when memory runs out: use fewer workers; " if memory else "")
            + "run the same command again to go on",
        )


def _in_order(pool: Sequence[_Worker], groups: Sequence[Sequence[int]]) -> Iterator[Certified]:
    of = {worker.connection: worker for worker in pool}
    waiting = deque(enumerate(groups))
    done: dict[int, list[Certified]] = {}
    first = 0
    while first < len(groups):
        for worker in pool:
            near = waiting and waiting[0][0] < first + WINDOW * len(pool)
            if near and worker.idle:
                worker.give(*waiting.popleft())
        before = time.monotonic()
        speaking: list[Any] = list(wait(list(of), TICK))
        # Not the time in which we were stopped ourselves, with the whole group (Ctrl-Z).
        seconds = min(time.monotonic() - before, 2 * TICK)
        for connection, worker in of.items():
            if connection not in speaking:
                worker.waited(seconds)
                continue
            group = worker.group
            certified = worker.hear()
            if certified is not None and group is not None:
                done[group] = certified
        while first in done:
            yield from done.pop(first)
            first += 1


def _work(connection: Connection[Any, Any]) -> None:
    """A worker's whole life: the job, then positions in and certificates or errors out, and signs of life
    between them, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; we are stopped
    Thread(target=_end_with_parent, daemon=True).start()

    def sign(_: int = 0) -> None:
        connection.send(None)

    with suppress(EOFError, OSError):  # nobody listens any more
        sign()
        job: Job = pickle.loads(connection.recv())
        smoothed: Smoothed | None = None
        while True:
            positions = connection.recv()
            try:
                smoothed = smoothed or Smoothed(job.model, job.info, job.config, store=Store(job.artefacts))
                images = take(job.dataset, np.array(positions))
                certified = list(smoothed.records(images, on_votes=sign))
                connection.send((certified, work_of(smoothed.engine)))
            except SmoothheadsError as error:
                connection.send(error)


def _end_with_parent() -> None:
    """Also when it is killed and cannot stop us."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _pickled(job: Job) -> bytes:
    """By value: torch's own way between processes needs shared memory, of which containers have little."""
    try:
        return pickle.dumps(job)
    except Exception as error:  # whatever somebody's own module or data set raises
        raise ConfigError("a network that can be sent to workers", str(error), "use one worker") from error


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started inside do not hear Ctrl-C, which goes to the whole group: we stop them ourselves. We
    hear it when the block ends."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows; there a worker is deaf once it has started
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # multiprocessing's own helper; starting it would end our deafness
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
