"""Shares one network among clients: jobs take turns, wait in a queue, and stop when nobody listens.

A job is an iterator whose steps are short (a pass of the network). One thread makes the steps of all jobs in
turn, so that a long certificate does not keep a short one waiting, and a cancelled job ends after its step.
Every other step goes to the job that has had the fewest, so that a short request beside long ones waits for a
step or two and not for all of them; the other steps go round, so that nobody starves.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BusyError(Exception):
    """Raised where the queue is full."""


class OutOfTimeError(Exception):
    """Raised when a job has worked for as long as it may."""


class RequestJob(Generic[T]):
    """Work that was submitted to a Scheduler; `async for` gives what it yields, `cancel` ends it."""

    def __init__(
        self,
        work: Iterator[T],
        seconds: float,
        position: Callable[[RequestJob[Any]], int],
        on_cancel: Callable[[], None],
        *,
        small: bool,
    ) -> None:
        self.work, self.seconds, self.small = work, seconds, small
        self.steps = 0
        self._position, self._on_cancel = position, on_cancel
        self._items: deque[T] = deque()
        self.done = self.cancelled = False
        self._error: BaseException | None = None
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        self._begun: float | None = None

    def waiting(self) -> int:
        """Returns its place in the queue, from 1 on; 0 when it has begun."""
        return self._position(self)

    def cancel(self) -> None:
        """Ends the work after its present step; a job that waits leaves the queue at once."""
        self.cancelled = True
        self._on_cancel()

    async def wait(self, seconds: float | None = None) -> None:
        """Returns when there are items to take, when the work is done, or after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def take(self) -> list[T]:
        """Returns the items since the last call; raises the error of the work when all items were taken."""
        self._changed.clear()
        # The scheduler's thread may append meanwhile: only what is there now is taken.
        items = [self._items.popleft() for _ in range(len(self._items))]
        if self.done:
            self._changed.set()
            if self._error is not None and not items:
                raise self._error
        return items

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            await self.wait()
            done = self.done
            items = self.take()
            for item in items:
                yield item
            if done and not items:
                return

    def _late(self) -> bool:
        """Returns whether its time is over, counted from its first step."""
        now = time.monotonic()
        self._begun = now if self._begun is None else self._begun
        return now - self._begun >= self.seconds

    def _put(self, item: T) -> None:
        self._items.append(item)
        self._notify()

    def _finish(self, error: BaseException | None = None) -> None:
        self._error, self.done = error, True
        self._notify()

    def _notify(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server is going down
            self._loop.call_soon_threadsafe(self._changed.set)


class Scheduler:
    """Works in one thread; `at_once` jobs take turns and `queue` more may wait.

    Small jobs have half as many places again for themselves, and go first in the queue.
    """

    def __init__(self, *, at_once: int, queue: int) -> None:
        self.at_once, self.queue = at_once, queue
        self.steps = 0
        """Steps made so far; the count stands still when there is no work."""
        self._active: deque[RequestJob[Any]] = deque()
        self._waiting: deque[RequestJob[Any]] = deque()
        self._change = threading.Condition()
        self._closed = self._fresh_first = False
        self._thread = threading.Thread(target=self._run, name="smoothheads-serve", daemon=True)
        self._thread.start()

    @property
    def jobs(self) -> tuple[int, int]:
        """Numbers of jobs that take turns and of jobs that wait."""
        with self._change:
            return len(self._active), len(self._waiting)

    def submit(self, work: Iterator[T], *, seconds: float, small: bool = False) -> RequestJob[T]:
        """Adds a job; raises BusyError where the queue is full.

        Args:
            work: An iterator with short steps.
            seconds: Time limit, from the first step on.
            small: Whether it has a few steps only.
        """
        job = RequestJob(work, seconds, self._position, self._wake, small=small)
        with self._change:
            self._move_up()
            if len(self._active) < self._places(small):
                self._active.append(job)
            elif len(self._waiting) >= self.queue:
                raise BusyError
            elif small:
                self._waiting.insert(sum(other.small for other in self._waiting), job)
            else:
                self._waiting.append(job)
            self._change.notify()
        return job

    def is_full(self, small: bool) -> bool:
        """Returns whether the next job would be refused."""
        with self._change:
            self._move_up()
            return len(self._active) >= self._places(small) and len(self._waiting) >= self.queue

    def _places(self, small: bool) -> int:
        return self.at_once + (self.at_once // 2 if small else 0)

    def close(self) -> None:
        """Cancels all jobs and ends the thread."""
        with self._change:
            self._closed = True
            for job in (*self._active, *self._waiting):
                job.cancelled = True
            self._change.notify()
        self._thread.join()

    def _wake(self) -> None:
        with self._change:
            self._change.notify()

    def _position(self, job: RequestJob[Any]) -> int:
        with self._change:
            return self._waiting.index(job) + 1 if job in self._waiting else 0

    def _run(self) -> None:
        while (job := self._turn()) is not None:
            more = self._step(job)
            with self._change:
                self._active.remove(job)
                if more:
                    self._active.append(job)

    def _turn(self) -> RequestJob[Any] | None:
        with self._change:
            self._move_up()
            while not self._active:
                if self._closed:
                    return None
                self._change.wait()
                self._move_up()
            self._fresh_first = not self._fresh_first
            if self._fresh_first:
                return min(self._active, key=lambda job: job.steps)
            return self._active[0]

    def _move_up(self) -> None:
        """Lets cancelled jobs leave the queue, and the next ones begin."""
        for job in [job for job in self._waiting if job.cancelled]:
            self._waiting.remove(job)
            job._finish()
        while self._waiting and len(self._active) < self._places(self._waiting[0].small):
            self._active.append(self._waiting.popleft())

    def _step(self, job: RequestJob[Any]) -> bool:
        """Makes one step of a job, and returns whether there is more to do."""
        error: BaseException | None = None
        # A job ends because it was cancelled, its time is over, its work is done, or its work failed.
        if not job.cancelled:
            if job._late():
                error = OutOfTimeError()
            else:
                try:
                    job._put(next(job.work))
                    self.steps += 1
                    job.steps += 1
                    return True
                except StopIteration:
                    pass
                except BaseException as raised:  # the thread serves everybody: it goes on
                    error = raised
        with suppress(Exception):
            getattr(job.work, "close", lambda: None)()
        job._finish(error)
        return False
