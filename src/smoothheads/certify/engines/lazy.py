"""The rule consensus-K with less work: heads beyond the K-th only see copies on which the K disagree.

These copies are collected, across blocks, into batches of the usual size, so that a pass is always of one
size. The votes are those of consensus-K computed in full; those of other rules are not to be had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothheads import device as devices
from smoothheads.certify.engines.base import Request
from smoothheads.certify.engines.eager import TorchEngine
from smoothheads.certify.soundness import require_finite, require_function
from smoothheads.errors import ConfigError, one_of
from smoothheads.models.aggregate import ensemble
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.types import Phase, Pixels, Votes


class Work(NamedTuple):
    """What an engine's heads were asked so far."""

    copies: int = 0
    agreed: int = 0
    """Copies on which the first K heads agree."""
    passes: int = 0
    """Batches that the first K heads saw."""
    late_passes: int = 0
    """Batches that the other heads saw."""

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


class LazyConsensusEngine(TorchEngine):
    """`work` says how often the heads agreed and what that saved."""

    def __init__(self, model: MultiHead, noise: Noise, *, rule: str, **settings: Any) -> None:
        super().__init__(model, noise, **settings | {"compiled": False})
        if rule not in self.rules:
            raise one_of("rule of this network", rule, self.rules)
        self.rules, self.work = (rule,), Work()
        self.compiled = bool(settings.get("compiled", False))
        first = int(rule.removeprefix("consensus-"))
        network = cast(MultiHead, self.model)  # never grouped
        early, late = _Early(network, first), _Late(network, first)
        with torch.inference_mode():
            blank = self._prepared(np.zeros((noise.block_size, *settings["shape"]), dtype=np.float32))
            features = self._run(early, blank)[1]
            if not isinstance(features, Tensor):
                raise ConfigError("a trunk with one output for lazy_consensus", "several", "switch it off")
            self._early, self._late = self._ready(early, blank), self._ready(late, features)
        self._late_probed = False

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"lazy_consensus": True}

    @torch.inference_mode()
    def votes(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Votes:
        classes: list[Tensor] = []
        left: list[_Undecided] = []
        with devices.threads(self.threads):
            for copies_NCHW, wanted in self._blocks(image, index, phase, block, count):
                decided_N, undecided = self._first_heads(copies_NCHW, wanted, index)
                classes.append(decided_N)
                left.append(undecided)
                while sum(map(len, left)) >= self.noise.block_size:
                    classes.append(self._other_heads(left, index))
            while any(map(len, left)):
                classes.append(self._other_heads(left, index))
        table: NDArray[np.int64] = self._counted(torch.cat(classes)[None])
        return Votes(self.rules, table)

    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        return [self.votes(ask.image, ask.index, ask.phase, ask.block, ask.count) for ask in requests]

    def scores(self, *_: object) -> NDArray[np.float64]:
        raise ConfigError("all heads of every copy for scores", "lazy_consensus", "switch it off")

    def _first_heads(self, copies_NCHW: Tensor, wanted: int, index: int) -> tuple[Tensor, _Undecided]:
        """Classes of the copies on which the first heads agree, and the copies on which they do not."""
        if not self._probed:
            require_function(lambda x: self._run(self._early, x)[0], copies_NCHW, self.tolerance)
            self._probed = True
        logits_KNC, features_N = self._run(self._early, copies_NCHW)
        self._probe_late(features_N)
        logits_KNC = logits_KNC[:, :wanted].to(torch.float32, copy=True)
        require_finite(logits_KNC, index)
        heads_KN = logits_KNC.argmax(-1)
        agree_N = (heads_KN == heads_KN[0]).all(0)
        agreed_N = heads_KN[0][agree_N]
        copies, agreed, passes, late_passes = self.work
        self.work = Work(copies + wanted, agreed + len(agreed_N), passes + 1, late_passes)
        return agreed_N, _Undecided(features_N[:wanted][~agree_N], logits_KNC[:, ~agree_N])

    def _other_heads(self, left: list[_Undecided], index: int) -> Tensor:
        """Classes of the first copies in `left`, at most a block of them, which are taken out of it."""
        size = self.noise.block_size
        features, logits_KMC = torch.cat([u.features for u in left]), torch.cat([u.logits for u in left], 1)
        left[:] = [_Undecided(features[size:], logits_KMC[:, size:])]
        count = min(size, len(features))
        padding = features[:1].expand(size - count, *features.shape[1:])
        batch = torch.cat([features[:count], padding]).contiguous(memory_format=torch.channels_last)
        others = self._run(self._late, batch)[:, :count].to(torch.float32)
        require_finite(others, index)
        self.work = self.work._replace(late_passes=self.work.late_passes + 1)
        return ensemble(torch.cat([logits_KMC[:, :count], others])).argmax(-1)

    def _probe_late(self, features_N: Tensor) -> None:
        """Where a copy stands in the second batch depends on other copies, so it must not change a bit."""
        if not self._late_probed:
            require_function(lambda x: self._run(self._late, x), features_N, tolerance=0)
            self._late_probed = True

    def _run(self, part: Any, x: Tensor) -> Any:
        with devices.autocast(self.device, self.precision):
            return part(x.contiguous(memory_format=torch.channels_last))


class _Undecided(NamedTuple):
    """Copies that wait for the other heads: what the trunk and the first heads said about them."""

    features: Tensor
    logits: Tensor

    def __len__(self) -> int:
        return len(self.features)


class _Early(nn.Module):
    """Logits of the first heads, and what the other heads would read."""

    def __init__(self, model: MultiHead, first: int) -> None:
        super().__init__()
        self.normalize, self.trunk, self.heads = model.normalize, model.trunk, model.heads[:first]

    def forward(self, x_NCHW: Tensor) -> tuple[Tensor, Any]:
        features = self.trunk(self.normalize(x_NCHW))
        return torch.stack([head(features) for head in self.heads]), features


class _Late(nn.Module):
    def __init__(self, model: MultiHead, first: int) -> None:
        super().__init__()
        self.heads = model.heads[first:]

    def forward(self, features: Tensor) -> Tensor:
        return torch.stack([head(features) for head in self.heads])
