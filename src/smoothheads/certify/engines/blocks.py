"""What all engines share: noise ahead of the network, passes of one size, checks, and votes of every rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothheads import device as devices
from smoothheads.certify.engines.ahead import ahead
from smoothheads.certify.engines.base import Request
from smoothheads.certify.soundness import require_apart, require_finite, require_function
from smoothheads.models.aggregate import decide, ensemble, rules
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.types import Phase, Pixels, Votes

TOGETHER: Final = 2**16  # logits that are decided at once; the rules take as long for a block as for ten


Key = tuple[Pixels, int, Phase, int]
"""Image, its index, phase and block: what decides the noise."""


class Block(NamedTuple):
    """One block of a pass: which of the requests it is for, the key of its noise, and how many of its copies
    are wanted."""

    request: int
    key: Key
    wanted: int


class BlockEngine(ABC):
    """Calls `_logits` once per pass, always with as many whole blocks. Subclasses say what computes the
    logits."""

    tolerance: float = 1e-3
    """How much the place in a block may move a logit, relative to the largest: rounding, nothing else."""

    def __init__(
        self, model: MultiHead, noise: Noise, *, classes: int, threads: int, blocks_per_pass: int = 1
    ) -> None:
        self.noise, self.classes, self.threads = noise, classes, threads
        self.blocks_per_pass, self.copies_per_pass = blocks_per_pass, blocks_per_pass * noise.block_size
        self.weights_L = model.ensemble_weights
        self.heads = len(model.heads)
        self.rules = rules(self.heads, weighted=self.weights_L is not None)
        self._probed = False

    background: bool = True
    """Whether a thread draws the next block while the network is busy with this one."""

    @abstractmethod
    def _prepared(self, copies: NDArray[np.float32]) -> Tensor:
        """The pass as the network wants it; called in the background."""

    def _copies(self, keys: Sequence[Key]) -> Tensor:
        """The copies of these blocks, as the network wants them."""
        drawn = [self.noise.noisy(*key) for key in keys]
        return self._prepared(drawn[0] if len(drawn) == 1 else np.concatenate(drawn))

    @abstractmethod
    def _logits(self, copies_NCHW: Tensor) -> Tensor:
        """Float32 logits [L, N, C] in memory of their own."""

    @abstractmethod
    def describe(self) -> dict[str, Any]: ...

    @abstractmethod
    def fingerprint(self) -> str: ...

    def votes(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Votes:
        return self.votes_of([Request(image, index, phase, block, count)])[0]

    @torch.inference_mode()
    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        votes = [Votes.none(self.rules, self.classes) for _ in requests]
        with devices.threads(self.threads):
            for logits_LNC, copies in self._sampled(requests):
                parts = decide(logits_LNC, self.weights_L).split_with_sizes(list(copies.values()), 1)
                for request, classes_RN in zip(copies, parts, strict=True):
                    votes[request] += Votes(self.rules, self._counted(classes_RN))
        return votes

    @torch.inference_mode()
    def scores(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> NDArray[np.float64]:
        with devices.threads(self.threads):
            parts = self._sampled([Request(image, index, phase, block, count)])
            p_NC = [ensemble(logits_LNC).softmax(-1).cpu().numpy() for logits_LNC, _ in parts]
        return np.concatenate(p_NC)

    def _sampled(self, requests: Sequence[Request]) -> Iterator[tuple[Tensor, dict[int, int]]]:
        """Finite logits [L, M, C] of the copies that are wanted, and how many of them belong to which
        request, in order."""
        for logits_LNC, blocks in _joined(self._passes(requests)):
            copies: dict[int, int] = {}
            for block in blocks:
                copies[block.request] = copies.get(block.request, 0) + block.wanted
            parts = logits_LNC.split_with_sizes(list(copies.values()), 1)
            for request, part_LNC in zip(copies, parts, strict=True):
                require_finite(part_LNC, requests[request].index)
            yield logits_LNC, copies

    def _passes(self, requests: Sequence[Request]) -> Iterator[tuple[Tensor, Block]]:
        """Logits of one block each, cut to what is wanted."""
        for copies_NCHW, blocks in self._filled(requests):
            self._probe(copies_NCHW)
            logits_LNC = self._logits(copies_NCHW)
            for place, block in enumerate(blocks):
                first = place * self.noise.block_size
                yield logits_LNC[:, first : first + block.wanted], block

    def _filled(self, requests: Sequence[Request]) -> Iterator[tuple[Tensor, list[Block]]]:
        """Whole passes of copies, the noise drawn ahead, and the blocks in them."""
        size, most = self.noise.block_size, self.blocks_per_pass
        blocks = [
            Block(
                number,
                (ask.image, ask.index, ask.phase, ask.block + done // size),
                min(size, ask.count - done),
            )
            for number, ask in enumerate(requests)
            for done in range(0, ask.count, size)
        ]
        passes = [blocks[first : first + most] for first in range(0, len(blocks), most)]

        @torch.inference_mode()  # of the thread that draws
        def prepared(number: int) -> Tensor:
            keys = [block.key for block in passes[number]]
            return self._copies(keys + keys[-1:] * (most - len(keys)))  # what is missing, to be thrown away

        numbers = range(len(passes))
        drawn = ahead(prepared, numbers) if self.background else map(prepared, numbers)
        yield from zip(drawn, passes, strict=True)

    def _probe(self, copies_NCHW: Tensor) -> None:
        """Until it has seen a pass of finite logits."""
        if not self._probed and require_function(self._logits, copies_NCHW, self.tolerance):
            require_apart(self._logits, copies_NCHW, self.noise.block_size)
            self._probed = True

    def _counted(self, classes_RN: Tensor) -> NDArray[np.int64]:
        rows = torch.arange(len(classes_RN), device=classes_RN.device)[:, None] * self.classes
        counts = torch.bincount((classes_RN + rows).flatten(), minlength=len(classes_RN) * self.classes)
        table: NDArray[np.int64] = counts.reshape(len(classes_RN), self.classes).cpu().numpy()
        return table


def _joined(parts: Iterator[tuple[Tensor, Block]]) -> Iterator[tuple[Tensor, list[Block]]]:
    """The same logits in fewer pieces, of at most TOGETHER numbers unless a block has more."""
    waiting: list[Tensor] = []
    blocks: list[Block] = []
    for part, block in parts:
        waiting.append(part)
        blocks.append(block)
        if sum(each.numel() for each in waiting) + part.numel() > TOGETHER:
            yield torch.cat(waiting, 1), blocks
            waiting, blocks = [], []
    if waiting:
        yield torch.cat(waiting, 1), blocks
