"""Shares one network among clients: jobs take turns, wait in a queue, and stop when nobody listens.

A job is an iterator whose steps are short (a pass of the network). One thread makes the steps of all jobs in
turn, so that a long certificate does not keep a short one waiting, and a cancelled job ends after its step.
Every other step goes to the job that has had the fewest, so that a short request beside long ones waits for a
step or two and not for all of them; the other steps go round, so that nobody starves.

Everything but the steps themselves happens in the event loop, so that nothing needs a lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")
END: Any = object()
"""Stands for the item of a job that has no more."""


class BusyError(HTTPException):
    """Raised where the queue is full."""

    def __init__(self) -> None:
        super().__init__(429, "too many requests under way", {"Retry-After": "1"})


class OutOfTimeError(Exception):
    """Raised when a job has worked for as long as it may."""


class RequestJob(Generic[T]):
    """Work that was submitted to a Scheduler; `async for` gives what it yields, `cancel` ends it."""

    def __init__(self, work: Iterator[T], seconds: float, scheduler: Scheduler, *, small: bool) -> None:
        self.work, self.seconds, self.small = work, seconds, small
        self.steps = 0
        self.done = self.cancelled = False
        self._scheduler = scheduler
        self._items: list[T] = []
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._begun: float | None = None

    def position(self) -> int:
        """Returns its place in the queue, from 1 on; 0 when it has begun."""
        waiting = self._scheduler.waiting
        return waiting.index(self) + 1 if self in waiting else 0

    def cancel(self) -> None:
        """Ends the work after its present step; a job that waits leaves the queue at once."""
        self.cancelled = True
        self._scheduler.move_up()

    async def take(self, seconds: float | None = None) -> list[T]:
        """Returns the items since the last call; none when the work is done, or when none come in `seconds`.

        Raises the error of the work when all items were taken.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        items, self._items = self._items, []
        if not self.done:
            self._changed.clear()
        elif self._error is not None and not items:
            raise self._error
        return items

    async def __aiter__(self) -> AsyncIterator[T]:
        while items := await self.take():
            for item in items:
                yield item

    def step(self) -> T:
        """Makes one step in the scheduler's thread; returns END where there is none left."""
        now = time.monotonic()
        self._begun = now if self._begun is None else self._begun
        if not self.cancelled and now - self._begun < self.seconds:
            return next(self.work, END)
        with suppress(Exception):
            getattr(self.work, "close", lambda: None)()
        if not self.cancelled:
            raise OutOfTimeError
        return END  # type: ignore[no-any-return]

    def put(self, *items: T) -> None:
        """Hands items to the client."""
        self._items += items
        self.steps += len(items)
        self._changed.set()

    def finish(self, error: Exception | None = None) -> None:
        """Tells the client that there are no more items."""
        self._error, self.done = error, True
        self.put()


class Scheduler:
    """Works in one thread; `at_once` jobs take turns and `queue` more may wait.

    Small jobs have half as many places again for themselves, and go first in the queue.
    """

    def __init__(self, *, at_once: int, queue: int) -> None:
        self.at_once, self.queue = at_once, queue
        self.steps = 0
        """Steps made so far; the count stands still when there is no work."""
        self.active: list[RequestJob[Any]] = []
        """Jobs that take turns, the next one first."""
        self.waiting: list[RequestJob[Any]] = []
        self._fresh_first = False
        self._thread = ThreadPoolExecutor(1, "smoothheads-serve")
        self._running: asyncio.Task[None] | None = None

    def submit(self, work: Iterator[T], *, seconds: float, small: bool = False) -> RequestJob[T]:
        """Adds a job; raises BusyError where the queue is full.

        Args:
            seconds: Time limit, from the first step on.
            small: Whether it has a few steps only.
        """
        self.require_place(small)
        job = RequestJob(work, seconds, self, small=small)
        # Small jobs wait before the large ones, in the order in which they came.
        place = sum(other.small for other in self.waiting) if small else len(self.waiting)
        self.waiting.insert(place, job)
        self.move_up()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return job

    def require_place(self, small: bool) -> None:
        """Raises BusyError if a job would be refused now."""
        if len(self.active) >= self._places(small) and len(self.waiting) >= self.queue:
            raise BusyError

    def close(self) -> None:
        """Ends all jobs and the thread, after its present step."""
        if self._running is not None:
            self._running.cancel()
        for job in (*self.active, *self.waiting):
            job.cancelled = True
            job.finish()
        self._thread.shutdown()

    def move_up(self) -> None:
        """Lets cancelled jobs leave the queue, and the next ones begin."""
        for job in [job for job in self.waiting if job.cancelled]:
            self.waiting.remove(job)
            job.finish()
        while self.waiting and len(self.active) < self._places(self.waiting[0].small):
            self.active.append(self.waiting.pop(0))

    def _places(self, small: bool) -> int:
        return self.at_once + (self.at_once // 2 if small else 0)

    async def _run(self) -> None:
        """Makes steps as long as there are jobs."""
        while self.active:
            # Every other step is for the job that has had the fewest, the others go round.
            self._fresh_first = not self._fresh_first
            job = min(self.active, key=lambda job: job.steps) if self._fresh_first else self.active[0]
            item, error = END, None
            try:
                item = await asyncio.get_running_loop().run_in_executor(self._thread, job.step)
            except Exception as raised:  # the other jobs go on
                error = raised
            # A job that goes on takes its turn again after all others.
            self.active.remove(job)
            if item is END:
                job.finish(error)
            else:
                self.active.append(job)
                self.steps += 1
                job.put(item)
            self.move_up()
