"""Drives the runs of images with the votes of an engine: one at a time, or several in flight, so that the
passes of a small network are full. Nothing depends on timing: votes depend on their keys alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Final, Generic, Protocol, TypeVar

from smoothheads.certify.algorithm import Run, Samples, checked
from smoothheads.certify.engines import Engine, Request
from smoothheads.types import Certificate, Phase, Pixels, Votes

T = TypeVar("T")
OnVotes = Callable[[int], None]


class Drive(Protocol):
    def __call__(
        self, engine: Engine, flights: Iterable[Flight[T]], on_votes: OnVotes | None = None
    ) -> Iterator[list[Flight[T]]]: ...


AT_ONCE: Final = 8  # passes that an engine is asked for; progress is told after that many
WINDOW: Final = 8  # images per block of a pass that may be ahead of the one that is waited for


class Flight(Generic[T]):
    """One image under way: its run, and all votes that it was given."""

    result: T
    seconds: float = 0.0
    """That its samples took, where others count them; 0 where the images under way share the time."""

    def __init__(self, run: Run[T], image: Pixels, index: int, aggregation: str, engine: Engine) -> None:
        self.image, self.index = image, index
        self._run, self._rule, self._size = run, aggregation, engine.noise.block_size
        self._zeros = Votes.zeros(engine.aggregations, engine.classes)
        self._votes: dict[Phase, Votes] = {}
        self._blocks: dict[Phase, int] = {}  # that are used up
        self._fresh = self._zeros  # of the part of the request that is served already
        self.request: Request | None = None
        """What it waits for; None when it has ended."""
        self.so_far: Certificate | None = None
        """What holds if it is not continued."""
        self.error: Exception | None = None

    def start(self) -> None:
        self._continue(lambda: next(self._run))

    def take(self, count: int, votes: Votes) -> None:
        """Votes of the first `count` samples of the request; with all of them the run goes on."""
        request, fresh = self.request, self._fresh + votes
        assert request is not None
        self._blocks[request.phase] = request.block + -(-count // self._size)
        if count < request.count:
            self._fresh = fresh
            self._ask(request.phase, request.count - count)
            return
        self._fresh, self._votes[request.phase] = self._zeros, self.votes(request.phase) + fresh
        self._continue(lambda: self._run.send(checked(fresh.for_aggregation(self._rule), fresh.n)))

    def votes(self, *phases: Phase) -> Votes:
        """All aggregations' votes of these phases so far."""
        return sum((self._votes.get(phase, self._zeros) for phase in phases), start=self._zeros)

    def _continue(self, step: Callable[[], Samples]) -> None:
        self.request = self.so_far = None
        try:
            wanted = step()
            self.so_far = wanted.so_far
            self._ask(wanted.phase, wanted.count)
        except StopIteration as end:
            self.result = end.value
        except Exception as error:  # raised again when this image's turn comes
            self.error = error

    def _ask(self, phase: Phase, count: int) -> None:
        self.request = Request(self.image, self.index, phase, self._blocks.get(phase, 0), count)


def drive(
    engine: Engine, flights: Iterable[Flight[T]], on_votes: OnVotes | None = None
) -> Iterator[list[Flight[T]]]:
    """All flights in order, in groups, as soon as they have ended.

    What a run raises is raised here when its turn comes, what the engine raises at once.
    """
    coming, flying = iter(flights), deque[Flight[T]]()
    while _start(flying, coming, engine.blocks_per_pass):
        _serve(engine, flying, on_votes)
        ended = list(takewhile(lambda flight: flight.request is None and flight.error is None, flying))
        if ended:
            yield [flying.popleft() for _ in ended]
        if flying and flying[0].error is not None:
            raise flying[0].error


def steps(engine: Engine, flight: Flight[T]) -> Iterator[Flight[T]]:
    """One image alone, to be looked at after every part of a request that was served."""
    flight.start()
    while flight.request is not None:
        _serve(engine, [flight], None)
        if flight.error is None:
            yield flight
    if flight.error is not None:
        raise flight.error


def _start(flying: deque[Flight[T]], coming: Iterator[Flight[T]], most: int) -> bool:
    """As many as fill a pass if each wants one block; False if none is left."""
    while len(flying) < WINDOW * most and sum(flight.request is not None for flight in flying) < most:
        flight = next(coming, None)
        if flight is None:
            break
        flying.append(flight)
        flight.start()
    return bool(flying)


def _serve(engine: Engine, flying: Iterable[Flight[T]], on_votes: OnVotes | None) -> None:
    """Votes for the first of those who wait, in full passes as long as there is enough to fill them."""
    size, per_pass = engine.noise.block_size, engine.blocks_per_pass
    waiting = [(flight, flight.request) for flight in flying if flight.request is not None]
    blocks = sum(-(-request.count // size) for _, request in waiting)
    left = min(AT_ONCE, max(1, blocks // per_pass)) * per_pass
    served: list[tuple[Flight[T], Request]] = []
    for flight, request in waiting:
        if left > 0:
            served.append((flight, replace(request, count=min(request.count, left * size))))
            left -= -(-request.count // size)
    if not served:
        return
    votes = engine.votes_of([request for _, request in served])
    if on_votes:
        on_votes(sum(request.count for _, request in served))
    for (flight, request), counted in zip(served, votes, strict=True):
        flight.take(request.count, counted)
