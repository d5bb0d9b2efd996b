"""The rule consensus-K with less work: heads beyond the K-th only see copies on which the K disagree.

These copies are collected, across blocks, into batches of the usual size, so that a pass is always of one
size. The votes are those of consensus-K computed in full by the same two parts; those of other rules are not
to be had.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from operator import add, sub
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothheads import device as devices
from smoothheads.certify.engines.base import Engine, Request
from smoothheads.certify.engines.blocks import BlockEngine
from smoothheads.certify.soundness import require_finite, require_function
from smoothheads.errors import ConfigError
from smoothheads.models.aggregate import ensemble
from smoothheads.types import Phase, Votes


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine's heads were asked so far."""

    copies: int = 0
    agreed: int = 0
    """Copies on which the first K heads agree."""
    passes: int = 0
    """Batches that the first K heads saw."""
    late_passes: int = 0
    """Batches that the other heads saw."""

    def __add__(self, other: Work) -> Work:
        return Work(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Work) -> Work:
        return Work(*map(sub, astuple(self), astuple(other)))

    @property
    def agreement(self) -> float:
        return self.agreed / max(1, self.copies)

    @property
    def saved(self) -> float:
        """Share of the other heads' batches that were not computed."""
        return 1 - self.late_passes / max(1, self.passes)

    def __str__(self) -> str:
        return (
            f"lazy consensus: the first heads agreed on {self.agreement:.1%} of {self.copies} copies; "
            f"the other heads were spared {self.saved:.1%} of their passes"
        )


class LazyConsensusEngine(BlockEngine):
    """Named before the engine that computes the two parts: `class X(LazyConsensusEngine, SomeEngine)`. Its
    constructor ends with `_start`. `work` says how often the heads agreed and what that saved."""

    work = Work()

    @abstractmethod
    def _first(self, copies_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Float32 logits [K, N, C] in memory of their own, and features [N, ...] that hold until the next
        call."""

    @abstractmethod
    def _others(self, features: Tensor) -> Tensor:
        """Float32 logits [L - K, N, C] in memory of their own."""

    def _start(self, rule: str, shape: tuple[int, int, int]) -> None:
        """Where a copy stands in the second batch depends on other copies, so it must not change a bit: an
        engine whose other heads are not like that is refused here."""
        self.rules, self._late_probed = (rule,), False
        with torch.inference_mode(), devices.threads(self.threads):
            self._probe_late(self._first(self._blank(shape))[1])

    def _probe_late(self, features: Tensor) -> None:
        if not self._late_probed:
            remedy = "use another engine, or lazy_consensus off, for this network"
            self._late_probed = require_function(self._others, features, 0, remedy)

    def _blank(self, shape: tuple[int, int, int]) -> Tensor:
        """Noise and nothing else."""
        return self._prepared(self.noise.noisy(np.zeros(shape, dtype=np.uint8), 0, Phase.PILOT, 0))

    def _described(self) -> dict[str, Any]:
        return {"lazy_consensus": True, "first_heads": int(self.rules[0].removeprefix("consensus-"))}

    @torch.inference_mode()
    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        with devices.threads(self.threads):
            return [self._votes(request) for request in requests]

    def _votes(self, request: Request) -> Votes:
        classes: list[Tensor] = []
        left: list[_Undecided] = []
        for copies_NCHW, (only,) in self._filled([request]):
            decided_N, undecided = self._first_heads(copies_NCHW, only.wanted, request.index)
            classes.append(decided_N)
            left.append(undecided)
            while sum(map(len, left)) >= self.noise.block_size:
                classes.append(self._other_heads(left, request.index))
        while any(map(len, left)):
            classes.append(self._other_heads(left, request.index))
        return Votes(self.rules, self._counted(torch.cat(classes)[None]))

    def scores(self, *_: object) -> NDArray[np.float64]:
        raise ConfigError("all heads of every copy for scores", "lazy_consensus", "switch it off")

    def _logits(self, copies_NCHW: Tensor) -> Tensor:
        return self._first(copies_NCHW)[0]

    def _first_heads(self, copies_NCHW: Tensor, wanted: int, index: int) -> tuple[Tensor, _Undecided]:
        """Classes of the copies on which the first heads agree, and the copies on which they do not."""
        self._probe(copies_NCHW)
        logits_KNC, features_N = self._first(copies_NCHW)
        self._probe_late(features_N)
        logits_KNC = logits_KNC[:, :wanted]
        require_finite(logits_KNC, index)
        heads_KN = logits_KNC.argmax(-1)
        agree_N = (heads_KN == heads_KN[0]).all(0)
        agreed_N = heads_KN[0][agree_N]
        self.work += Work(copies=wanted, agreed=len(agreed_N), passes=1)
        return agreed_N, _Undecided(features_N[:wanted][~agree_N], logits_KNC[:, ~agree_N])

    def _other_heads(self, left: list[_Undecided], index: int) -> Tensor:
        """Classes of the first copies in `left`, at most a block of them, which are taken out of it."""
        size = self.noise.block_size
        features, logits_KMC = torch.cat([u.features for u in left]), torch.cat([u.logits for u in left], 1)
        left[:] = [_Undecided(features[size:], logits_KMC[:, size:])]
        count = min(size, len(features))
        padding = features[:1].expand(size - count, *features.shape[1:])
        others = self._others(torch.cat([features[:count], padding]))[:, :count]
        require_finite(others, index)
        self.work += Work(late_passes=1)
        return ensemble(torch.cat([logits_KMC[:, :count], others])).argmax(-1)


def work_of(engine: Engine) -> Work:
    """None at all if it is not lazy."""
    return engine.work if isinstance(engine, LazyConsensusEngine) else Work()


class _Undecided(NamedTuple):
    """Copies that wait for the other heads: what the trunk and the first heads said about them."""

    features: Tensor
    logits: Tensor

    def __len__(self) -> int:
        return len(self.features)
