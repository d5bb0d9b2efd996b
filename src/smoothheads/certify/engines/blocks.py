"""What all engines share: noise ahead of the network, one pass per block, checks, and votes of every rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothheads import device as devices
from smoothheads.certify.engines.ahead import ahead
from smoothheads.certify.soundness import require_finite, require_function
from smoothheads.models.aggregate import decide, ensemble, rules
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.types import Phase, Pixels, Votes

TOGETHER: Final = 2**16  # logits that are decided at once; the rules take as long for a block as for ten


class BlockEngine(ABC):
    """Calls `_logits` once per block, always with a whole one. Subclasses say what computes the logits."""

    tolerance: float = 1e-3
    """How much the place in a block may move a logit, relative to the largest: rounding, nothing else."""

    def __init__(self, model: MultiHead, noise: Noise, *, classes: int, threads: int) -> None:
        self.noise, self.classes, self.threads = noise, classes, threads
        self.weights_L = model.ensemble_weights
        self.heads = len(model.heads)
        self.rules = rules(self.heads, weighted=self.weights_L is not None)
        self._probed = False

    background: bool = True
    """Whether a thread draws the next block while the network is busy with this one."""

    @abstractmethod
    def _prepared(self, copies: NDArray[np.float32]) -> Tensor:
        """The block as the network wants it; called in the background."""

    def _copies(self, image: Pixels, index: int, phase: Phase, block: int) -> Tensor:
        return self._prepared(self.noise.noisy(image, index, phase, block))

    @abstractmethod
    def _logits(self, copies_NCHW: Tensor) -> Tensor:
        """Float32 logits [L, N, C] in memory of their own."""

    @abstractmethod
    def describe(self) -> dict[str, Any]: ...

    @abstractmethod
    def fingerprint(self) -> str: ...

    @torch.inference_mode()
    def votes(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Votes:
        with devices.threads(self.threads):
            parts = self._sampled(image, index, phase, block, count)
            tables = [self._counted(decide(logits_LNC, self.weights_L)) for logits_LNC in parts]
        return Votes(self.rules, sum(tables, start=np.zeros_like(tables[0])))

    @torch.inference_mode()
    def scores(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> NDArray[np.float64]:
        with devices.threads(self.threads):
            parts = self._sampled(image, index, phase, block, count)
            p_NC = [ensemble(logits_LNC).softmax(-1).cpu().numpy() for logits_LNC in parts]
        return np.concatenate(p_NC)

    def _sampled(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Iterator[Tensor]:
        """Finite logits [L, M, C], `count` copies in all."""
        for logits_LNC in _joined(self._passes(image, index, phase, block, count)):
            require_finite(logits_LNC, index)
            yield logits_LNC

    def _passes(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Iterator[Tensor]:
        """Logits of one block each, the last one cut to what is wanted."""
        for copies_NCHW, wanted in self._blocks(image, index, phase, block, count):
            self._probe(copies_NCHW)
            yield self._logits(copies_NCHW)[:, :wanted]

    def _blocks(
        self, image: Pixels, index: int, phase: Phase, block: int, count: int
    ) -> Iterator[tuple[Tensor, int]]:
        """Whole blocks of copies, the noise drawn ahead, and how many of each are wanted."""
        size = self.noise.block_size

        @torch.inference_mode()  # of the thread that draws
        def prepared(each: int) -> Tensor:
            return self._copies(image, index, phase, each)

        blocks = range(block, block + -(-count // size))
        drawn = ahead(prepared, blocks) if self.background else map(prepared, blocks)
        for done, copies_NCHW in zip(range(0, count, size), drawn, strict=True):
            yield copies_NCHW, min(size, count - done)

    def _probe(self, copies_NCHW: Tensor) -> None:
        if not self._probed:
            require_function(self._logits, copies_NCHW, self.tolerance)
            self._probed = True

    def _counted(self, classes_RN: Tensor) -> NDArray[np.int64]:
        rows = torch.arange(len(classes_RN), device=classes_RN.device)[:, None] * self.classes
        counts = torch.bincount((classes_RN + rows).flatten(), minlength=len(classes_RN) * self.classes)
        table: NDArray[np.int64] = counts.reshape(len(classes_RN), self.classes).cpu().numpy()
        return table


def _joined(parts: Iterator[Tensor]) -> Iterator[Tensor]:
    """The same logits in fewer pieces, of at most TOGETHER numbers unless a block has more."""
    waiting: list[Tensor] = []
    for part in parts:
        waiting.append(part)
        if sum(each.numel() for each in waiting) + part.numel() > TOGETHER:
            yield torch.cat(waiting, 1)
            waiting = []
    if waiting:
        yield torch.cat(waiting, 1)
