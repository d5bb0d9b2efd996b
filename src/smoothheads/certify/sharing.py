"""Which noise blocks a worker computes next: images in order, long ones in ranges, so that nobody waits for
the last one. Votes are sums over keyed blocks, so it does not matter who counts which part, or how often one
is asked again because an answer was lost.

There is no clock and no process here: whoever runs the workers (Ray, or a simulation) asks for tasks and says
what came of them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from smoothheads.certify.engines.base import Request

DRIVER_SECONDS: Final = 0.001  # that the process which hands out tasks is busy with one
TASK_SECONDS: Final = 1.0  # of work that a worker is given at once,
CALM: Final = 5  # or so often what keeps the driver busy all the time, if that is more
LEAST_SECONDS: Final = 0.1  # of work for which further images are started
SHARES: Final = 3  # parts per worker into which what is in sight is split at most
WINDOW: Final = 8  # tasks per worker that images may be ahead of the one that is waited for


class Waiting(Protocol):
    """An image under way, as `drive.Flight` is one."""

    request: Request | None
    error: Exception | None

    def start(self) -> None: ...

    def take(self, count: int, votes: Any) -> None: ...


F = TypeVar("F", bound=Waiting)


@dataclass(eq=False, slots=True)
class _Image(Generic[F]):
    place: int
    flight: F
    left: list[Request] = field(default_factory=list)
    """Ranges of its request that nobody computes."""
    out: int = 0
    """Ranges that somebody computes."""
    votes: Any = None

    def __lt__(self, other: _Image[F]) -> bool:
        return self.place < other.place


@dataclass(frozen=True, slots=True, eq=False)
class Task(Generic[F]):
    """Ranges of blocks for one worker, of one image or of several."""

    number: int
    """Never given twice, so that an answer that comes too late is not taken for another."""
    images: tuple[_Image[F], ...]
    requests: tuple[Request, ...]
    blocks: int

    @property
    def samples(self) -> int:
        return sum(request.count for request in self.requests)

    @property
    def flights(self) -> tuple[F, ...]:
        return tuple(image.flight for image in self.images)


class Sharing(Generic[F]):
    """`total` images, with about `typical` samples each, are handed out in tasks of whole passes, of
    `per_pass` blocks of `size` samples. Without `split` a request stays in one piece."""

    def __init__(
        self,
        flights: Iterable[F],
        *,
        total: int,
        typical: int,
        size: int,
        per_pass: int = 1,
        split: bool = True,
    ) -> None:
        self._coming, self._to_come = iter(flights), total
        self._typical, self._size, self._per_pass, self._split = -(-typical // size), size, per_pass, split
        self._flying: deque[_Image[F]] = deque()
        self._waiting: list[_Image[F]] = []  # a heap of those with ranges that nobody computes
        self._blocks = 0  # in these ranges
        self._started = self._given = 0
        self._out: dict[int, Task[F]] = {}

    @property
    def over(self) -> bool:
        """Nothing is under way and nothing is to come."""
        return not self._flying and not self._to_come

    def next(self, seconds: float, workers: int) -> Task[F] | None:
        """Work for one of so many workers, which takes `seconds` per block; none as long as all that is left
        waits for others."""
        most, least = self._sizes(seconds, workers)
        images: list[_Image[F]] = []
        requests: list[Request] = []
        blocks = 0
        while blocks < most and (self._waiting or (blocks < least and self._start(WINDOW * workers * least))):
            if self._waiting:
                image = self._waiting[0]
                requests.append(self._taken(image, most - blocks))
                images.append(image)
                blocks += self._blocks_of(requests[-1])
        if not requests:
            return None
        self._given += 1
        task = Task(self._given, tuple(images), tuple(requests), blocks)
        self._out[task.number] = task
        return task

    def done(self, number: int, votes: Sequence[Any]) -> bool:
        """Votes for a task's requests; False if nobody waits for them any more."""
        task = self._out.pop(number, None)
        if task is None:
            return False
        for image, counted in zip(task.images, votes, strict=True):
            image.votes = counted if image.votes is None else image.votes + counted
            image.out -= 1
            if image.out == 0 and not image.left:
                request, whole = image.flight.request, image.votes
                assert request is not None
                image.votes = None
                image.flight.take(request.count, whole)
                self._ask(image)
        return True

    def lost(self, number: int) -> None:
        """Nobody computes this task any more: its ranges are the next to be given out."""
        task = self._out.pop(number, None)
        for image, request in zip(task.images, task.requests, strict=True) if task else ():
            image.out -= 1
            self._add(image, request)

    def ended(self) -> list[F]:
        """Those at the front that have ended, in order. Raises what a run raised when its turn comes."""
        found: list[F] = []
        while self._flying and self._flying[0].flight.request is None:
            error = self._flying[0].flight.error
            if error is not None and not found:
                raise error
            if error is not None:
                break
            found.append(self._flying.popleft().flight)
        return found

    def _sizes(self, seconds: float, workers: int) -> tuple[int, int]:
        """Blocks of the next task: at most, and for which further images are started."""
        busy = DRIVER_SECONDS * workers
        in_sight = self._blocks + self._to_come * self._typical
        shortest = max(self._per_pass, busy / seconds)
        most = min(max(TASK_SECONDS, CALM * busy) / seconds, in_sight / (SHARES * workers))
        return self._whole(max(most, shortest)), self._whole(max(LEAST_SECONDS / seconds, shortest))

    def _whole(self, blocks: float) -> int:
        """In whole passes."""
        return max(1, int(blocks / self._per_pass)) * self._per_pass

    def _start(self, window: int) -> bool:
        """Another image, unless there is none or it would be too far ahead."""
        if len(self._flying) >= window or not self._to_come:
            return False
        flight = next(self._coming)
        self._to_come -= 1
        self._started += 1
        image = _Image(self._started, flight)
        self._flying.append(image)
        flight.start()
        self._ask(image)
        return True

    def _ask(self, image: _Image[F]) -> None:
        if image.flight.request is not None:
            self._add(image, image.flight.request)

    def _add(self, image: _Image[F], request: Request) -> None:
        if not image.left:
            heapq.heappush(self._waiting, image)
        image.left.append(request)
        self._blocks += self._blocks_of(request)

    def _taken(self, image: _Image[F], most: int) -> Request:
        """The first so many blocks of what the first image waits for."""
        request = image.left.pop()
        blocks = self._blocks_of(request)
        if self._split and blocks > most:
            rest = replace(request, block=request.block + most, count=request.count - most * self._size)
            image.left.append(rest)
            request, blocks = replace(request, count=most * self._size), most
        if not image.left:
            heapq.heappop(self._waiting)
        image.out += 1
        self._blocks -= blocks
        return request

    def _blocks_of(self, request: Request) -> int:
        return -(-request.count // self._size)
