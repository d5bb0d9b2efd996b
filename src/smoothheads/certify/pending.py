"""Runs the budgets of images with the votes of a counter: one image at a time, or several so that the passes
of a small network are full. Nothing depends on timing: votes depend on their keys alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from smoothheads.certify.algorithm import Run, Samples, validate_votes
from smoothheads.certify.votes import Request, VoteCounter
from smoothheads.types import Certificate, Phase, Pixels, Votes

T = TypeVar("T")
OnVotes: TypeAlias = Callable[[int], None]
"""Called with how many samples were counted."""

AT_ONCE: Final = 8  # passes that are requested together; progress is reported after that many
WINDOW: Final = 8  # images per block of a pass that may be ahead of the first one


class PendingImage(Generic[T]):
    """One image whose run has not ended: the run, and all votes that it was given."""

    result: T
    seconds: float = 0.0
    """The time of its samples, where others count them; 0 where pending images share the time."""

    def __init__(
        self, run: Run[T], image: Pixels, index: int, aggregation: str, counter: VoteCounter
    ) -> None:
        self.image, self.index = image, index
        self._run, self._aggregation, self._size = run, aggregation, counter.noise.block_size
        self._zeros = Votes.zeros(counter.aggregations, counter.classes)
        self._votes: dict[Phase, Votes] = {}
        self._blocks: dict[Phase, int] = {}  # that are used up
        self._fresh = self._zeros  # votes of the part of the request that is served already
        self.request: Request | None = None
        """The votes that it waits for; None when it has ended."""
        self.partial: Certificate | None = None
        """The certificate that holds if it is not continued."""
        self.error: Exception | None = None

    def start(self) -> None:
        self._continue(lambda: next(self._run))

    def receive(self, count: int, votes: Votes) -> None:
        """Takes the votes of the first `count` samples of the request; with all of them the run goes on."""
        request, fresh = self.request, self._fresh + votes
        assert request is not None
        self._blocks[request.phase] = request.block + -(-count // self._size)
        if count < request.count:
            self._fresh = fresh
            self._ask(request.phase, request.count - count)
            return
        self._fresh, self._votes[request.phase] = self._zeros, self.votes(request.phase) + fresh
        self._continue(
            lambda: self._run.send(validate_votes(fresh.for_aggregation(self._aggregation), fresh.n))
        )

    def votes(self, *phases: Phase) -> Votes:
        """Returns all aggregations' votes of these phases so far."""
        return sum((self._votes.get(phase, self._zeros) for phase in phases), start=self._zeros)

    def _continue(self, step: Callable[[], Samples]) -> None:
        self.request = self.partial = None
        try:
            samples = step()
            self.partial = samples.partial
            self._ask(samples.phase, samples.count)
        except StopIteration as end:
            self.result = end.value
        except Exception as error:  # raised again when this image's turn comes
            self.error = error

    def _ask(self, phase: Phase, count: int) -> None:
        self.request = Request(self.image, self.index, phase, self._blocks.get(phase, 0), count)


class RunImages(Protocol):
    def __call__(
        self, counter: VoteCounter, images: Iterable[PendingImage[T]], on_votes: OnVotes | None = None
    ) -> Iterator[list[PendingImage[T]]]: ...


def run_images(
    counter: VoteCounter, images: Iterable[PendingImage[T]], on_votes: OnVotes | None = None
) -> Iterator[list[PendingImage[T]]]:
    """Yields all images in order, in groups, as soon as their runs have ended.

    An error of a run is raised when its turn comes, one of the counter at once.
    """
    coming, pending = iter(images), deque[PendingImage[T]]()
    most = counter.blocks_per_pass
    while True:
        # Start as many as fill a pass if each requests one block, but none too far ahead of the first.
        while len(pending) < WINDOW * most and sum(each.request is not None for each in pending) < most:
            image = next(coming, None)
            if image is None:
                break
            pending.append(image)
            image.start()
        if not pending:
            return
        _serve(counter, pending, on_votes)
        ended = list(takewhile(lambda each: each.request is None and each.error is None, pending))
        if ended:
            yield [pending.popleft() for _ in ended]
        if pending and pending[0].error is not None:
            raise pending[0].error


def run_steps(counter: VoteCounter, image: PendingImage[T]) -> Iterator[PendingImage[T]]:
    """Yields one image after every part of a request that was served."""
    image.start()
    while image.request is not None:
        _serve(counter, [image], None)
        if image.error is None:
            yield image
    if image.error is not None:
        raise image.error


def _serve(counter: VoteCounter, pending: Iterable[PendingImage[T]], on_votes: OnVotes | None) -> None:
    """Counts votes for the first images, in full passes as long as there is enough to fill them."""
    size, per_pass = counter.noise.block_size, counter.blocks_per_pass
    waiting = [(image, image.request) for image in pending if image.request is not None]
    blocks = sum(-(-request.count // size) for _, request in waiting)
    left = min(AT_ONCE, max(1, blocks // per_pass)) * per_pass
    served: list[tuple[PendingImage[T], Request]] = []
    for image, request in waiting:
        if left > 0:
            served.append((image, replace(request, count=min(request.count, left * size))))
            left -= -(-request.count // size)
    if not served:
        return
    votes = counter.votes_of([request for _, request in served])
    if on_votes:
        on_votes(sum(request.count for _, request in served))
    for (image, request), counted in zip(served, votes, strict=True):
        image.receive(request.count, counted)
