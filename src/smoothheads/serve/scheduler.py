"""Work of several clients on one network: they take turns, wait in a queue, and stop when nobody listens.

A job is an iterator whose steps are short (a pass of the network). One thread makes the steps of all jobs in
turn, so that a long certificate does not keep a short one waiting, and a cancelled job ends with its step.
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
    """The queue is full."""


class OutOfTimeError(Exception):
    """A job had worked for as long as it may."""


class RequestJob(Generic[T]):
    """Made by `Scheduler.submit`; `async for` gives what the work yields, `cancel` ends it."""

    def __init__(self, work: Iterator[T], seconds: float, position: Callable[[RequestJob[Any]], int]) -> None:
        self.work, self.seconds = work, seconds
        self._position = position
        self._items: deque[T] = deque()
        self.done = self.cancelled = False
        self._error: BaseException | None = None
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        self._begun: float | None = None

    def waiting(self) -> int:
        """How many are before it in the queue, itself included; 0 when it has begun."""
        return self._position(self)

    def cancel(self) -> None:
        self.cancelled = True

    async def news(self, seconds: float | None = None) -> None:
        """Returns when there is something to take, when the work is done, or after that many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    def take(self) -> list[T]:
        """What has come since the last time; raises what the work raised when everything before was taken."""
        self._news.clear()
        items = [self._items.popleft() for _ in range(len(self._items))]
        if self.done:
            self._news.set()
            if self._error is not None and not items:
                raise self._error
        return items

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            await self.news()
            done = self.done
            items = self.take()
            for item in items:
                yield item
            if done and not items:
                return

    def _late(self) -> bool:
        """Whether it has had its seconds, from its first step on."""
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
            self._loop.call_soon_threadsafe(self._news.set)


class Scheduler:
    """One thread of work; `at_once` jobs take turns and `queue` more may wait."""

    def __init__(self, *, at_once: int, queue: int) -> None:
        self.at_once, self.queue = at_once, queue
        self.steps = 0
        """Steps made so far; it stands still when nobody has work."""
        self._active: deque[RequestJob[Any]] = deque()
        self._waiting: deque[RequestJob[Any]] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="smoothheads-serve", daemon=True)
        self._thread.start()

    @property
    def under_way(self) -> tuple[int, int]:
        """Jobs that take turns, and jobs that wait."""
        with self._change:
            return len(self._active), len(self._waiting)

    def submit(self, work: Iterator[T], *, seconds: float) -> RequestJob[T]:
        """Raises BusyError where the queue is full."""
        job = RequestJob(work, seconds, self._position)
        with self._change:
            if len(self._active) < self.at_once:
                self._active.append(job)
            elif len(self._waiting) < self.queue:
                self._waiting.append(job)
            else:
                raise BusyError
            self._change.notify()
        return job

    def close(self) -> None:
        with self._change:
            self._closed = True
            for job in (*self._active, *self._waiting):
                job.cancel()
            self._change.notify()
        self._thread.join()

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
            return self._active[0]

    def _move_up(self) -> None:
        """The queue moves on; those that nobody waits for any more leave it."""
        for job in [job for job in self._waiting if job.cancelled]:
            self._waiting.remove(job)
            job._finish()
        while self._waiting and len(self._active) < self.at_once:
            self._active.append(self._waiting.popleft())

    def _step(self, job: RequestJob[Any]) -> bool:
        """Whether there is more to do."""
        error: BaseException | None = None
        if not job.cancelled:
            if job._late():
                error = OutOfTimeError()
            else:
                try:
                    job._put(next(job.work))
                    self.steps += 1
                    return True
                except StopIteration:
                    pass
                except BaseException as raised:  # the thread serves everybody: it goes on
                    error = raised
        with suppress(Exception):
            getattr(job.work, "close", lambda: None)()
        job._finish(error)
        return False
