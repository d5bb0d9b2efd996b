"""From keyed noise to votes: the one place where noise, an engine and the aggregations come together.

Blocks of noise are computed whole and every pass holds the same number of them, whose logits do not depend on
each other by one bit, so that votes depend on the key of the noise alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify import soundness
from smoothheads.certify.recheck import Recheck
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models import aggregate
from smoothheads.types import Phase, Pixels, Votes

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig
    from smoothheads.certify.engines.base import Engine, Floats
    from smoothheads.noise import Noise

T = TypeVar("T")


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
        self.blocks_per_pass = config.blocks_per_pass if isinstance(config.blocks_per_pass, int) else 1
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
        row = self.aggregations.index(config.aggregation)
        self.recheck = Recheck(
            engine,
            config.recheck,
            self.blocks_per_pass * noise.block_size,
            lambda logits_LNC: self._aggregate(logits_LNC)[row],
        )

    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        """Returns the votes for every request.

        Raises SoundnessError if a logit is not finite, or depends on anything but its own noisy image.
        """
        votes = [Votes.zeros(self.aggregations, self.classes) for _ in requests]
        for logits_LNC, samples in self.logits(requests):
            classes_RN = self._aggregate(logits_LNC)
            start = 0
            for request, count in samples.items():
                part_RN = classes_RN[:, start : start + count]
                votes[request] += Votes(self.aggregations, self._count(part_RN))
                start += count
            if self.recheck.is_full:
                self.recheck.run()
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
            self._probe(samples_NCHW)
            logits_LNC = self.engine.logits(samples_NCHW)
            self.recheck.remember(samples_NCHW, logits_LNC)
            parts: list[Floats] = []
            samples: dict[int, int] = {}
            for place, block in enumerate(blocks):
                part_LNC = logits_LNC[:, place * size : place * size + block.wanted]
                soundness.check_logits(part_LNC, self.classes, requests[block.request].index)
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
            # A pass that is not full is filled with copies of its last block, which nobody counts.
            full = part + part[-1:] * (most - len(part))
            drawn = []
            for each in full:
                request = requests[each.request]
                drawn.append(self.noise.noisy(request.image, request.index, request.phase, each.block))
            return drawn[0] if most == 1 else np.concatenate(drawn)

        yield from zip(prefetch(draw, range(len(passes))), passes, strict=True)

    def _probe(self, samples_NCHW: Floats) -> None:
        """Probes the network until it has seen a pass of finite logits."""
        engine = self.engine
        if not self._probed and soundness.check_function(
            engine.logits, samples_NCHW, engine.tolerance, any_batch=engine.any_batch
        ):
            soundness.check_blocks_independent(engine.logits, samples_NCHW, self.noise.block_size)
            self._probed = True

    def _count(self, classes_RN: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns votes [R, C]; a class outside the range would become a vote in another row."""
        if classes_RN.size and not 0 <= classes_RN.min() <= classes_RN.max() < self.classes:
            raise SoundnessError(
                f"An aggregation votes for classes {classes_RN.min()} to {classes_RN.max()}, but there are "
                f"only classes 0 to {self.classes - 1}: repair the aggregation."
            )
        rows = len(classes_RN)
        offsets = np.arange(rows)[:, None] * self.classes
        counts = np.bincount((classes_RN + offsets).ravel(), minlength=rows * self.classes)
        return counts.reshape(rows, self.classes)


def prefetch(make: Callable[[int], T], items: Sequence[int]) -> Iterator[T]:
    """Yields `make(item)` of every item in order; a thread makes the next one while this one is used."""
    if len(items) < 2:
        yield from map(make, items)
        return
    with ThreadPoolExecutor(1) as background:
        coming = background.submit(make, items[0])
        for item in items[1:]:
            made = coming.result()
            coming = background.submit(make, item)
            yield made
        yield coming.result()
