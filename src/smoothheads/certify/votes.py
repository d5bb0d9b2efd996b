"""From keyed noise to votes, and from votes to the budgets of images.

This is the one place where noise, an engine and the aggregations come together. A forward pass is one whole
block of noise, so that votes depend on the key of the noise alone, and never on timing or on what is asked
for at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify import soundness
from smoothheads.certify.algorithm import Run, Samples, validate_votes
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models import aggregate
from smoothheads.types import Certificate, Counts, Phase, Pixels, Votes

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig
    from smoothheads.certify.engines.base import Engine, Floats
    from smoothheads.noise import Noise

T = TypeVar("T")
OnVotes: TypeAlias = Callable[[int], None]
"""Called with how many samples were counted."""

AT_ONCE: Final = 8  # blocks that are counted before progress is reported


class VoteCounter:
    """Counts the votes of every aggregation that an engine's logits give under one keyed noise."""

    def __init__(self, engine: Engine, noise: Noise, config: CertifyConfig) -> None:
        self.engine, self.noise, self.classes = engine, noise, engine.classes
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
        self.recheck = soundness.Recheck(
            engine, config.recheck, noise.block_size, lambda logits_LNC: self._aggregate(logits_LNC)[row]
        )

    def votes(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Votes:
        """Returns the votes of `count` noisy samples of an image, from the first of `block` on.

        Raises SoundnessError if a logit is not finite, or depends on anything but its own noisy image.
        """
        votes = Votes.zeros(self.aggregations, self.classes)
        for logits_LMC in self.logits(image, index, phase, block, count):
            # Every sample is one vote in each aggregation.
            votes += Votes(self.aggregations, self._count(self._aggregate(logits_LMC)))
            self.recheck.run_if_full()
        return votes

    def logits(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Iterator[Floats]:
        """Yields, block by block, the finite logits [L, M, C] of these samples."""
        size = self.noise.block_size
        blocks = range(block, block + -(-count // size))
        drawn = prefetch(lambda number: self.noise.noisy(image, index, phase, number), blocks)
        for number, samples_NCHW in zip(blocks, drawn, strict=True):
            # The network is probed until it has seen a block of finite logits.
            self._probed = self._probed or soundness.check_function(self.engine, samples_NCHW)
            logits_LNC = self.engine.evaluate(samples_NCHW)
            # A secret fraction of the samples is remembered for the second evaluation.
            self.recheck.remember(samples_NCHW, logits_LNC)
            # Blocks are computed whole. Of the last one only the wanted samples count, all of them finite.
            wanted_LMC = logits_LNC[:, : count - (number - block) * size]
            soundness.check_finite(wanted_LMC, index)
            yield wanted_LMC

    def _aggregate(self, logits_LNC: Floats) -> NDArray[np.int64]:
        return aggregate.aggregate_votes(logits_LNC, self.engine.head_weights, self._plugin)

    def _count(self, classes_RN: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns votes [R, C]; a class outside the range would become a vote in another row."""
        if classes_RN.size and not 0 <= classes_RN.min() <= classes_RN.max() < self.classes:
            raise SoundnessError(
                f"An aggregation votes for classes {classes_RN.min()} to {classes_RN.max()}, but there are "
                f"only classes 0 to {self.classes - 1}: repair the aggregation."
            )
        return np.stack([np.bincount(row, minlength=self.classes) for row in classes_RN])


def prefetch(make: Callable[[int], T], items: Sequence[int]) -> Iterator[T]:
    """Yields `make(item)` of every item in order; a thread makes the next one while this one is used."""
    if len(items) < 2:
        yield from map(make, items)
        return
    # One item ahead: the noise of the next block is drawn while the network computes this one.
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
    """What the run returned, once it has ended."""

    def __init__(
        self, run: Run[T], image: Pixels, index: int, aggregation: str, counter: VoteCounter
    ) -> None:
        self.image, self.index = image, index
        self._run, self._aggregation, self._counter = run, aggregation, counter
        self._zeros = Votes.zeros(counter.aggregations, counter.classes)
        self._votes: dict[Phase, Votes] = {}
        self._blocks: dict[Phase, int] = {}  # that are used up
        self.request: Samples | None = None
        """The samples that it waits for; None when it has ended."""

    @property
    def partial(self) -> Certificate | None:
        """The certificate that holds if it is not continued."""
        return None if self.request is None else self.request.partial

    def votes(self, *phases: Phase) -> Votes:
        """Returns all aggregations' votes of these phases so far."""
        return sum((self._votes.get(phase, self._zeros) for phase in phases), start=self._zeros)

    def steps(self, on_votes: OnVotes | None = None) -> Iterator[PendingImage[T]]:
        """Goes on to the end, and yields itself whenever AT_ONCE blocks or a whole request were counted."""
        size = self._counter.noise.block_size
        self._continue(None)
        while (request := self.request) is not None:
            # A long request is served in parts; the run sees only all of it.
            fresh = self._zeros
            while (left := request.count - fresh.n) > 0:
                # Every part begins with a block that no other one had: no sample is used twice.
                part, block = min(left, AT_ONCE * size), self._blocks.get(request.phase, 0)
                fresh += self._counter.votes(self.image, self.index, request.phase, block, part)
                self._blocks[request.phase] = block - (-part // size)
                if on_votes:
                    on_votes(part)
                if part < left:
                    yield self
            self._votes[request.phase] = self.votes(request.phase) + fresh
            self._continue(validate_votes(fresh.for_aggregation(self._aggregation), request.count))
            yield self

    def _continue(self, votes: Counts | None) -> None:
        """Lets the run go on to its next request or to its end."""
        try:
            self.request = self._run.send(votes)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as end:
            self.request, self.result = None, end.value
