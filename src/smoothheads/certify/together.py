"""Several images in flight, so that the passes of a small network are full.

A budget is plain sequential code that asks for votes and waits for them. Here every image's runs in a thread
of its own, though never two at a time: a thread goes on when it is given its votes, and whoever gave them
waits for its next request. So nothing depends on timing, and the network runs in the caller's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from queue import SimpleQueue
from threading import Thread
from typing import Final, Generic, TypeVar

from smoothheads.certify.engines import Engine, Request
from smoothheads.types import Votes

T = TypeVar("T")
Ask = Callable[[Request], Votes]
OnVotes = Callable[[int], None]

AT_ONCE: Final = 8  # passes that an engine is asked for; progress is told after that many
WINDOW: Final = 8  # images per block of a pass that may be ahead of the one that is waited for


def together(
    engine: Engine, works: Iterable[Callable[[Ask], T]], on_votes: OnVotes | None = None
) -> Generator[list[T], None, None]:
    """The results of all works in order, in groups, as soon as they are there.

    What a work raises is raised here when its turn comes, what the engine raises at once. However the
    iteration ends, all threads end.
    """
    coming = iter(works)
    flights: deque[_Flight[T]] = deque()
    try:
        while _start(flights, coming, engine.blocks_per_pass):
            _serve(engine, flights, on_votes)
            done = list(takewhile(lambda flight: flight.request is None and flight.error is None, flights))
            if done:
                yield [flights.popleft().result for _ in done]
            if flights and flights[0].error is not None:
                raise flights[0].error
    finally:
        for flight in flights:
            flight.stop()


class _Flight(Generic[T]):
    """One image under way; `request` is what it waits for, None when it has ended."""

    result: T

    def __init__(self, work: Callable[[Ask], T]) -> None:
        self.request: Request | None = None
        self._votes: Votes | None = None  # of the part of the request that is served already
        self.error: BaseException | None = None
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._answers: SimpleQueue[Votes | None] = SimpleQueue()
        # A daemon: a program that is interrupted twice ends without waiting for it.
        self._thread = Thread(target=self._run, args=(work,), daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._wait()

    def take(self, served: Request, votes: Votes, size: int) -> None:
        """Votes of the first part of the request; with all of them the work goes on."""
        request = self.request
        assert request is not None
        self._votes = votes if self._votes is None else self._votes + votes
        if served.count < request.count:
            block, count = request.block + served.count // size, request.count - served.count
            self.request = replace(request, block=block, count=count)
            return
        answer, self._votes = self._votes, None
        self._answers.put(answer)
        self._wait()

    def stop(self) -> None:
        """Whether it waits for votes or is about to ask for some, it gets the end."""
        self._answers.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _wait(self) -> None:
        self.request = self._requests.get()

    def _run(self, work: Callable[[Ask], T]) -> None:
        try:
            self.result = work(self._ask)
        except BaseException as error:  # raised again where the result is waited for
            self.error = error
        finally:
            self._requests.put(None)

    def _ask(self, request: Request) -> Votes:
        self._requests.put(request)
        votes = self._answers.get()
        if votes is None:
            raise _Stopped
        return votes


class _Stopped(BaseException):
    """Ends a work whose result nobody waits for any more."""


def _start(flights: deque[_Flight[T]], coming: Iterator[Callable[[Ask], T]], most: int) -> bool:
    """As many as fill a pass if each wants one block; False if none is left."""
    while len(flights) < WINDOW * most and sum(each.request is not None for each in flights) < most:
        work = next(coming, None)
        if work is None:
            break
        flights.append(_Flight(work))
        flights[-1].start()
    return bool(flights)


def _serve(engine: Engine, flights: Iterable[_Flight[T]], on_votes: OnVotes | None) -> None:
    """Votes for the first of those who wait, in full passes as long as there is enough to fill them."""
    size, per_pass = engine.noise.block_size, engine.blocks_per_pass
    waiting = [(flight, flight.request) for flight in flights if flight.request is not None]
    blocks = sum(-(-request.count // size) for _, request in waiting)
    left = min(AT_ONCE, max(1, blocks // per_pass)) * per_pass
    served: list[tuple[_Flight[T], Request]] = []
    for flight, request in waiting:
        if left > 0:
            served.append((flight, replace(request, count=min(request.count, left * size))))
            left -= -(-request.count // size)
    votes = engine.votes_of([request for _, request in served])
    if on_votes:
        on_votes(sum(request.count for _, request in served))
    for (flight, request), each in zip(served, votes, strict=True):
        flight.take(request, each, size)
