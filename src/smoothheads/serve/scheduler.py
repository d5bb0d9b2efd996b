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
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BusyError(Exception):
    """Raised where the queue is full."""


class OutOfTimeError(Exception):
    """Raised when a job has worked for as long as it may."""


class RequestJob(Generic[T]):
    """Work that was submitted to a Scheduler; `async for` gives what it yields, `cancel` ends it."""

    def __init__(self, work: Iterator[T], seconds: float, scheduler: Scheduler, *, small: bool) -> None:
        self.work, self.seconds, self.small = work, seconds, small
        self.steps = 0
        self.done = self.cancelled = False
        self._scheduler = scheduler
        self._items: deque[T] = deque()
        self._error: BaseException | None = None
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        self._begun: float | None = None

    def waiting(self) -> int:
        """Returns its place in the queue, from 1 on; 0 when it has begun."""
        return self._scheduler.position(self)

    def cancel(self) -> None:
        """Ends the work after its present step; a job that waits leaves the queue at once."""
        self.cancelled = True
        self._scheduler.wake()

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

    def step(self) -> bool:
        """Makes one step in the scheduler's thread, and returns whether there is more to do."""
        error: BaseException | None = None
        # A job ends because it was cancelled, its time is over, its work is done, or its work failed.
        if not self.cancelled:
            now = time.monotonic()
            self._begun = now if self._begun is None else self._begun
            if now - self._begun >= self.seconds:
                error = OutOfTimeError()
            else:
                try:
                    self._items.append(next(self.work))
                    self.steps += 1
                    self._notify()
                    return True
                except StopIteration:
                    pass
                except BaseException as raised:  # the thread serves everybody: it goes on
                    error = raised
        with suppress(Exception):
            getattr(self.work, "close", lambda: None)()
        self.finish(error)
        return False

    def finish(self, error: BaseException | None = None) -> None:
        """Tells the client that there are no more items."""
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
        job = RequestJob(work, seconds, self, small=small)
        with self._change:
            self._move_up()
            if len(self._active) < self._places(small):
                self._active.append(job)
            elif len(self._waiting) >= self.queue:
                raise BusyError
            elif small:
                # Small jobs wait before the large ones, in the order in which they came.
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

    def wake(self) -> None:
        """Makes the thread look again at its jobs."""
        with self._change:
            self._change.notify()

    def position(self, job: RequestJob[Any]) -> int:
        """Returns the place of a job in the queue, from 1 on; 0 when it has begun."""
        with self._change:
            return self._waiting.index(job) + 1 if job in self._waiting else 0

    def _run(self) -> None:
        while (job := self._turn()) is not None:
            more = job.step()
            self.steps += more
            with self._change:
                # A job that goes on takes its turn again after all others.
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
            # Every other step is for the job that has had the fewest, the others go round.
            self._fresh_first = not self._fresh_first
            if self._fresh_first:
                return min(self._active, key=lambda job: job.steps)
            return self._active[0]

    def _move_up(self) -> None:
        """Lets cancelled jobs leave the queue, and the next ones begin."""
        for job in [job for job in self._waiting if job.cancelled]:
            self._waiting.remove(job)
            job.finish()
        while self._waiting and len(self._active) < self._places(self._waiting[0].small):
            self._active.append(self._waiting.popleft())
