"""One interface to run a function on many items: in processes of this machine, or on Ray.

Certification maps over images and a study submits its jobs as soon as what they need is there. `runs.on_ray`
and `studies.on_ray` have the executors of a Ray cluster.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Any, Final, NamedTuple, TypeVar

from smoothheads.device import environment
from smoothheads.errors import ConfigError, WorkerError, reason

Item = TypeVar("Item")
Result = TypeVar("Result")
Future = futures.Future

AHEAD: Final = 8  # items per worker that may have started before the oldest one has ended
TICK: Final = 1.0  # seconds between two looks at the workers
ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""Variables that numerical libraries read when a process starts."""


class Executor(ABC):
    """Runs a function on items; the futures may end in any order."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Returns how many items can run at once."""

    @abstractmethod
    def submit(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        """Starts the function on the item, or queues it; a worker is sent the same function only once."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Future[Any]]:
        """Returns the futures that ended since the last call, waiting at most so long for the first one."""

    @abstractmethod
    def close(self) -> None:
        """Stops what still runs. Every item can be run again later."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yields the results in the order of the items; raises the first error when its turn comes."""
        coming, started = iter(items), deque[Future[Result]]()
        while True:
            # Items are read as late as possible: a data set need not fit into memory.
            while len(started) < AHEAD * self.slots and (item := next(coming, coming)) is not coming:
                started.append(self.submit(function, item))  # type: ignore[arg-type]
            # The oldest result is the next one to yield, whichever ends first.
            if not started:
                return
            if started[0].done():
                yield started.popleft().result()
            else:
                self.wait(TICK)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ProcessExecutor(Executor):
    """Runs items in processes of this machine, which end when this process ends, however it does.

    Every worker is a `ProcessPoolExecutor` of one process: a pool of several would be lost with any of them.

    Args:
        slots: The number of processes.
        stop_seconds: How long `close` waits after SIGTERM, which training uses to save its state.
        variables: Environment variables of the processes.
    """

    slots: int = 1

    def __init__(
        self, slots: int, stop_seconds: float = 1.0, variables: Mapping[str, str] | None = None
    ) -> None:
        self.slots, self._stop_seconds, self._variables = slots, stop_seconds, variables or {}
        self._queue: deque[_Task] = deque()
        self._idle: list[_Process] = []
        self._busy: dict[Future[Any], tuple[_Process, _Task]] = {}  # by the future of the worker's own pool
        self._function: Any = None
        self._pickled = b""

    def submit(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        if function is not self._function:
            self._function, self._pickled = function, pickled(function)
        # The caller's future outlives a worker: it is set when the worker's own future ends, or breaks.
        future: Future[Result] = Future()
        self._queue.append(_Task(future, self._pickled, item))
        self._assign()
        return future

    def wait(self, seconds: float) -> list[Future[Any]]:
        # Hand on what ended: the result, the error of the function, or how a worker died.
        ended = []
        for inner in futures.wait(self._busy, seconds, futures.FIRST_COMPLETED).done:
            worker, task = self._busy.pop(inner)
            error = inner.exception()
            if isinstance(error, BrokenProcessPool):
                worker.stop(0)
                error = worker.death()
            else:
                self._idle.append(worker)
            # The caller's future is set here, in its own thread.
            task.future.set_exception(error) if error else task.future.set_result(inner.result())
            ended.append(task.future)
        self._assign()
        return ended

    def close(self) -> None:
        workers = [*self._idle, *(worker for worker, _ in self._busy.values())]
        # All are asked before the first one is waited for, so that they save their states side by side.
        for worker in workers:
            worker.terminate()
        deadline = time.monotonic() + self._stop_seconds
        for worker in workers:
            worker.stop(max(0.1, deadline - time.monotonic()))
        self._idle, self._busy = [], {}
        self._queue.clear()

    def _assign(self) -> None:
        """Gives the oldest items in the queue to idle workers, starting new ones up to `slots`."""
        while self._queue and len(self._busy) < self.slots:
            task = self._queue.popleft()
            with environment(self._variables):
                worker = self._idle.pop() if self._idle else _Process()
            self._busy[worker.run(task)] = worker, task


class _Task(NamedTuple):
    future: Future[Any]
    function: bytes
    item: Any


class _Process:
    """One worker process and the function that it has."""

    def __init__(self) -> None:
        # Spawned, because a fork would inherit the locks of OpenMP's threads.
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_start_worker)
        self._function: bytes | None = None
        with ctrl_c_blocked():
            self._pool.submit(os.getpid)  # the pool starts its process with the first item
        (self.process,) = self._pool._processes.values()

    def run(self, task: _Task) -> Future[Any]:
        # A network is large, so a worker keeps it and is sent its items only.
        function = None if task.function is self._function else task.function
        self._function = task.function
        try:
            return self._pool.submit(_call, function, task.item)
        except BrokenProcessPool as error:  # it died while it was idle
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    def terminate(self) -> None:
        """Asks the process to end. A training that it interrupts saves its state first."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.process.terminate()

    def stop(self, seconds: float) -> None:
        """Waits so long for the process to end by itself, then kills it."""
        self.process.join(seconds)
        self.process.kill()
        self._pool.shutdown()

    def death(self) -> WorkerError:
        """Returns the error that says how the process ended."""
        # A negative code is the number of a signal; 9 is what the system sends when memory runs out.
        code, how = self.process.exitcode, "ended by itself"
        if code is not None and code < 0:
            known = -code in set(signal.Signals)
            how = f"was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"
        memory = ", as the system does when memory runs out: use fewer workers, or" if code == -9 else ":"
        return WorkerError(
            f"A worker process {how} (exit code {code}){memory} run the same command again to go on."
        )


_current: dict[str, Callable[[Any], Any]] = {}
"""The function of this worker process."""


def _call(function: bytes | None, item: Any) -> Any:
    """Runs the function on the item, in a worker; None stands for the function of the last call."""
    if function is not None:
        _current["function"] = pickle.loads(function)
    return _current["function"](item)


def _start_worker() -> None:
    # Ctrl-C goes to the whole group of processes, and the parent stops its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process with its parent, also when that is killed and cannot stop us."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def pickled(function: Any) -> bytes:
    """Returns the function by value: torch's own way between processes needs shared memory, which containers
    have little of. Raises ConfigError where a user's module cannot be pickled."""
    try:
        return pickle.dumps(function)
    except Exception as error:  # whatever somebody's own module raises
        raise ConfigError(
            f"This network cannot be sent to workers ({reason(error)}): use one worker, without Ray."
        ) from None


@contextmanager
def ctrl_c_blocked() -> Iterator[None]:
    """Starts processes that never see Ctrl-C; this process sees it when the block ends."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where a worker ignores it once it has started
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # starting this helper process later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
