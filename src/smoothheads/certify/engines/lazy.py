"""The aggregation consensus-K with less work: heads beyond the K-th only see samples on which the K disagree.

These samples are collected, across blocks, into batches of the usual size, so that a pass is always of one
size. The votes are those of consensus-K computed in full by the same two parts; those of other aggregations are not
to be had.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from operator import add, sub
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify import soundness
from smoothheads.certify.engines.base import BlockEngine, Engine, Network, Request
from smoothheads.errors import ConfigError
from smoothheads.lazy import torch
from smoothheads.models import aggregate
from smoothheads.types import Phase, Votes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine's heads were asked so far."""

    samples: int = 0
    agreed: int = 0
    """Samples on which the first K heads agree."""
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
        return self.agreed / max(1, self.samples)

    @property
    def saved(self) -> float:
        """Share of the other heads' batches that were not computed."""
        return 1 - self.late_passes / max(1, self.passes)

    def __str__(self) -> str:
        return (
            f"lazy consensus: the first heads agreed on {self.agreement:.1%} of {self.samples} samples; "
            f"the other heads were spared {self.saved:.1%} of their passes"
        )


class Lazy(BlockEngine):
    """Named before the engine that computes the two parts: `class X(Lazy, SomeEngine)`. Its
    constructor ends with `_start`. `work` says how often the heads agreed and what that saved."""

    work = Work()

    @abstractmethod
    def _first(self, samples_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Float32 logits [K, N, C] in memory of their own, and features [N, ...] that hold until the next
        call."""

    @abstractmethod
    def _others(self, features: Tensor) -> Tensor:
        """Float32 logits [L - K, N, C] in memory of their own."""

    def _start(self, network: Network) -> None:
        """Where a sample stands in the second batch depends on other samples, so it must not change a bit: an
        engine whose other heads are not like that is refused here."""
        self.aggregations, self._late_probed = (network.aggregation,), False
        with self.computing():
            self._probe_late(self._first(self._blank(network.info.shape))[1])

    def _probe_late(self, features: Tensor) -> None:
        if not self._late_probed:
            remedy = "use another engine, or lazy_consensus off, for this network"
            self._late_probed = soundness.require_function(self._others, features, 0, remedy)

    def _blank(self, shape: tuple[int, int, int]) -> Tensor:
        """Noise and nothing else."""
        return self._prepared(self.noise.noisy(np.zeros(shape, dtype=np.uint8), 0, Phase.PILOT, 0))

    def _described(self) -> dict[str, Any]:
        return {"lazy_consensus": True, "first_heads": int(self.aggregations[0].removeprefix("consensus-"))}

    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        with self.computing():
            return [self._votes(request) for request in requests]

    def _votes(self, request: Request) -> Votes:
        classes: list[Tensor] = []
        left: list[_Undecided] = []
        for samples_NCHW, (only,) in self._passes([request]):
            decided_N, undecided = self._first_heads(samples_NCHW, only.wanted, request.index)
            classes.append(decided_N)
            left.append(undecided)
            while sum(map(len, left)) >= self.noise.block_size:
                classes.append(self._other_heads(left, request.index))
        while any(map(len, left)):
            classes.append(self._other_heads(left, request.index))
        return Votes(self.aggregations, self._counted(torch.cat(classes)[None]))

    def scores(self, *_: object) -> NDArray[np.float64]:
        raise ConfigError("all heads of every sample for scores", "lazy_consensus", "switch it off")

    def _logits(self, samples_NCHW: Tensor) -> Tensor:
        return self._first(samples_NCHW)[0]

    def _first_heads(self, samples_NCHW: Tensor, wanted: int, index: int) -> tuple[Tensor, _Undecided]:
        """Classes of the samples on which the first heads agree, and the samples on which they do not."""
        self._probe(samples_NCHW)
        logits_KNC, features_N = self._first(samples_NCHW)
        self._probe_late(features_N)
        logits_KNC = logits_KNC[:, :wanted]
        self._require_votes(logits_KNC, index)
        heads_KN = logits_KNC.argmax(-1)
        agree_N = (heads_KN == heads_KN[0]).all(0)
        agreed_N = heads_KN[0][agree_N]
        self.work += Work(samples=wanted, agreed=len(agreed_N), passes=1)
        return agreed_N, _Undecided(features_N[:wanted][~agree_N], logits_KNC[:, ~agree_N])

    def _other_heads(self, left: list[_Undecided], index: int) -> Tensor:
        """Classes of the first samples in `left`, at most a block of them, which are taken out of it."""
        size = self.noise.block_size
        features, logits_KMC = torch.cat([u.features for u in left]), torch.cat([u.logits for u in left], 1)
        left[:] = [_Undecided(features[size:], logits_KMC[:, size:])]
        count = min(size, len(features))
        padding = features[:1].expand(size - count, *features.shape[1:])
        others = self._others(torch.cat([features[:count], padding]))[:, :count]
        self._require_votes(others, index)
        self.work += Work(late_passes=1)
        return aggregate.ensemble(torch.cat([logits_KMC[:, :count], others])).argmax(-1)


def check_lazy(blocks_per_pass: int | Literal["auto"], *, lazy: bool) -> None:
    if lazy and blocks_per_pass not in (1, "auto"):
        raise ConfigError(
            "one block per pass for lazy_consensus", str(blocks_per_pass), "drop one of the two"
        )


def work_of(engine: Engine) -> Work:
    """None at all if it is not lazy."""
    return engine.work if isinstance(engine, Lazy) else Work()


class _Undecided(NamedTuple):
    """Samples that wait for the other heads: what the trunk and the first heads said about them."""

    features: Tensor
    logits: Tensor

    def __len__(self) -> int:
        return len(self.features)
