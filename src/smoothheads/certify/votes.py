"""From keyed noise to votes, and from votes to the budgets of images.

This is the one place where noise, an engine and the aggregations come together. Blocks of noise are computed
whole and every pass holds the same number of them, whose logits do not depend on each other by one bit, so
that votes depend on the key of the noise alone, and never on timing or on which images are pending together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify import soundness
from smoothheads.certify.algorithm import Run, Samples, validate_votes
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models import aggregate
from smoothheads.types import Certificate, Phase, Pixels, Votes

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig
    from smoothheads.certify.engines.base import Engine, Floats
    from smoothheads.noise import Noise

T = TypeVar("T")
OnVotes: TypeAlias = Callable[[int], None]
"""Called with how many samples were counted."""

AT_ONCE: Final = 8  # passes that are requested together; progress is reported after that many
WINDOW: Final = 8  # images per block of a pass that may be ahead of the first one


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """`count` noisy samples of an image, from the first of `block` on into the blocks that follow."""

    image: Pixels
    index: int
    phase: Phase
    block: int
    count: int


class _Block(NamedTuple):
    """One block of a pass: the number of its request, its own number, and how many samples are wanted."""

    request: int
    block: int
    wanted: int


class VoteCounter:
    """Counts the votes of every aggregation that an engine's logits give under one keyed noise."""

    def __init__(self, engine: Engine, noise: Noise, config: CertifyConfig) -> None:
        self.engine, self.noise, self.classes = engine, noise, engine.classes
        self.blocks_per_pass = config.blocks_per_pass or 1
        self._plugin = aggregate.plugin_aggregation(config.aggregation)
        self.aggregations = aggregate.aggregations(engine.heads, weighted=engine.head_weights is not None)
        if self._plugin is not None:
            self.aggregations += (self._plugin.name,)
        if config.aggregation not in self.aggregations:
            raise ConfigError(
                f"This network has no aggregation {config.aggregation!r}: "
                f"choose from {', '.join(self.aggregations)}."
            )
        self._probed = False
        # The second evaluation compares the votes of the aggregation that is certified.
        row = self.aggregations.index(config.aggregation)
        size = self.blocks_per_pass * noise.block_size
        self.recheck = soundness.Recheck(
            engine, config.recheck, size, lambda logits_LNC: self._aggregate(logits_LNC)[row]
        )

    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        """Returns the votes for every request.

        Raises SoundnessError if a logit is not finite, or depends on anything but its own noisy image.
        """
        votes = [Votes.zeros(self.aggregations, self.classes) for _ in requests]
        for logits_LNC, samples in self.logits(requests):
            # Every sample is one vote in each aggregation [R, N]; the parts of a pass go to their requests.
            classes_RN = self._aggregate(logits_LNC)
            start = 0
            for request, count in samples.items():
                part_RN = classes_RN[:, start : start + count]
                votes[request] += Votes(self.aggregations, self._count(part_RN))
                start += count
            self.recheck.run_if_full()
        return votes

    def votes(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Votes:
        """Returns the votes for one request."""
        return self.votes_of([Request(image, index, phase, block, count)])[0]

    def logits(self, requests: Sequence[Request]) -> Iterator[tuple[Floats, dict[int, int]]]:
        """Yields, pass by pass, the finite logits [L, M, C] of the samples that are wanted.

        With them comes how many of these samples belong to which request, in order.
        """
        size = self.noise.block_size
        for samples_NCHW, blocks in self._passes(requests):
            # The network is probed until it has seen a pass of finite logits.
            self._probed = self._probed or soundness.check_function(self.engine, samples_NCHW, size)
            logits_LNC = self.engine.evaluate(samples_NCHW)
            # A secret fraction of the samples is remembered for the second evaluation.
            self.recheck.remember(samples_NCHW, logits_LNC)
            parts: list[Floats] = []
            samples: dict[int, int] = {}
            # Of every block only the wanted samples count, and all of them must be finite.
            for place, block in enumerate(blocks):
                part_LNC = logits_LNC[:, place * size : place * size + block.wanted]
                soundness.check_finite(part_LNC, requests[block.request].index)
                parts.append(part_LNC)
                samples[block.request] = samples.get(block.request, 0) + block.wanted
            yield parts[0] if len(parts) == 1 else np.concatenate(parts, 1), samples

    def _aggregate(self, logits_LNC: Floats) -> NDArray[np.int64]:
        return aggregate.aggregate_votes(logits_LNC, self.engine.head_weights, self._plugin)

    def _passes(self, requests: Sequence[Request]) -> Iterator[tuple[Floats, list[_Block]]]:
        """Yields whole passes of samples, the noise drawn ahead, and the blocks in them."""
        size, most = self.noise.block_size, self.blocks_per_pass
        blocks = [
            _Block(number, request.block + done // size, min(size, request.count - done))
            for number, request in enumerate(requests)
            for done in range(0, request.count, size)
        ]
        passes = [blocks[first : first + most] for first in range(0, len(blocks), most)]

        def draw(number: int) -> Floats:
            part = passes[number]
            drawn = []
            # A pass that is not full is filled with copies of its last block, which nobody counts.
            for each in part + part[-1:] * (most - len(part)):
                request = requests[each.request]
                drawn.append(self.noise.noisy(request.image, request.index, request.phase, each.block))
            return drawn[0] if most == 1 else np.concatenate(drawn)

        yield from zip(prefetch(draw, range(len(passes))), passes, strict=True)

    def _count(self, classes_RN: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns votes [R, C]; a class outside the range would become a vote in another row."""
        if classes_RN.size and not 0 <= classes_RN.min() <= classes_RN.max() < self.classes:
            raise SoundnessError(
                f"An aggregation votes for classes {classes_RN.min()} to {classes_RN.max()}, but there are "
                f"only classes 0 to {self.classes - 1}: repair the aggregation."
            )
        # All rows are counted at once: row r has the numbers r * classes to (r + 1) * classes - 1.
        rows = len(classes_RN)
        offsets = np.arange(rows)[:, None] * self.classes
        counts = np.bincount((classes_RN + offsets).ravel(), minlength=rows * self.classes)
        return counts.reshape(rows, self.classes)


def prefetch(make: Callable[[int], T], items: Sequence[int]) -> Iterator[T]:
    """Yields `make(item)` of every item in order; a thread makes the next one while this one is used."""
    if len(items) < 2:
        yield from map(make, items)
        return
    # One item ahead: the noise of the next pass is drawn while the network computes this one.
    with ThreadPoolExecutor(1) as background:
        coming = background.submit(make, items[0])
        for item in items[1:]:
            made = coming.result()
            coming = background.submit(make, item)
            yield made
        yield coming.result()


class PendingImage(Generic[T]):
    """One image whose run has not ended: the run, and all votes that it was given."""

    result: T

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
        """What the run raised; it is raised again when this image's turn comes."""

    def start(self) -> None:
        self._continue(lambda: next(self._run))

    def receive(self, count: int, votes: Votes) -> None:
        """Takes the votes of the first `count` samples of the request; with all of them the run goes on."""
        request, fresh = self.request, self._fresh + votes
        assert request is not None
        self._blocks[request.phase] = request.block + -(-count // self._size)
        # A long request is served in parts; the run sees only all of it.
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
        except Exception as error:
            self.error = error

    def _ask(self, phase: Phase, count: int) -> None:
        # Every request begins with a block that no other one had: no sample is used twice.
        self.request = Request(self.image, self.index, phase, self._blocks.get(phase, 0), count)


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
        # Hand out those at the front that have ended.
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
    # As many blocks as there are, in whole passes and AT_ONCE passes at most.
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
    # Every image gets its votes, and its run goes on to the next request.
    for (image, request), counted in zip(served, votes, strict=True):
        image.receive(request.count, counted)
