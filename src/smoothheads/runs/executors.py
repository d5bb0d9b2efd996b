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
from typing import Any, Final, TypeVar

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

    A thread waits for each of them. Every worker is a `ProcessPoolExecutor` of one process: a pool of several
    would be lost with any of them.

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
        self._threads = futures.ThreadPoolExecutor(slots)
        self._starting = threading.Lock()  # the environment of a new process is that of this one
        self._workers: list[_Process] = []
        self._idle: list[_Process] = []
        self._closed = False
        self._pending: set[Future[Any]] = set()
        self._function: Any = None
        self._pickled = b""

    def submit(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        if function is not self._function:
            self._function, self._pickled = function, pickled(function)
        future = self._threads.submit(self._run, self._pickled, item)
        self._pending.add(future)
        return future

    def wait(self, seconds: float) -> list[Future[Any]]:
        ended = futures.wait(self._pending, seconds, futures.FIRST_COMPLETED).done
        self._pending -= ended
        return list(ended)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        # All are asked before the first one is waited for, so that they save their states side by side.
        with self._starting:
            self._closed = True
            for worker in self._workers:
                worker.process.terminate()
        deadline = time.monotonic() + self._stop_seconds
        for worker in self._workers:
            worker.stop(max(0.1, deadline - time.monotonic()))
        self._threads.shutdown()

    def _run(self, function: bytes, item: Any) -> Any:
        """Runs an item in an idle worker, or in a new one; called in a thread of ours."""
        with self._starting, environment(self._variables):
            if self._closed:
                raise WorkerError("The workers were stopped: run the same command again to go on.")
            if not self._idle:
                self._idle.append(_Process())
                self._workers.append(self._idle[-1])
            worker = self._idle.pop()
        try:
            result = worker.call(function, item)
        except BrokenProcessPool:
            raise worker.death() from None
        except BaseException:
            self._idle.append(worker)
            raise
        self._idle.append(worker)
        return result


class _Process:
    """One worker process and the function that it has."""

    def __init__(self) -> None:
        # Spawned, because a fork would inherit the locks of OpenMP's threads.
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_start_worker)
        self._function: bytes | None = None
        with ctrl_c_blocked():
            self._pool.submit(os.getpid)  # the pool starts its process with the first item
        (self.process,) = self._pool._processes.values()

    def call(self, function: bytes, item: Any) -> Any:
        """Returns the result. A network is large, so the process keeps it and is sent its items only."""
        known, self._function = self._function, function
        return self._pool.submit(_call, None if function is known else function, item).result()

    def stop(self, seconds: float) -> None:
        """Waits so long for the process to end by itself, then kills it."""
        self.process.join(seconds)
        self.process.kill()
        self._pool.shutdown()

    def death(self) -> WorkerError:
        """Returns the error that says how the process ended."""
        self.stop(0)
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
