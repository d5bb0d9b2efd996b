"""Lazy consensus on PyTorch."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from smoothheads.certify.engines.eager import TorchEngine
from smoothheads.certify.engines.lazy import LazyConsensusEngine
from smoothheads.certify.engines.split import split
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise


class LazyTorchEngine(LazyConsensusEngine, TorchEngine):
    in_one_piece = False

    def __init__(
        self, model: MultiHead, noise: Noise, *, rule: str, shape: tuple[int, int, int], **settings: Any
    ) -> None:
        TorchEngine.__init__(self, model, noise, shape=shape, **settings)
        early, late = split(cast(MultiHead, self.model), rule)  # never grouped
        with torch.inference_mode():
            blank = self._blank(shape)
            features = self._run(early, blank)[1]
            self._early, self._late = self._ready(early, blank), self._ready(late, features)
        self._start(rule, shape)

    def describe(self) -> dict[str, Any]:
        return TorchEngine.describe(self) | self._described()

    def _first(self, copies_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        logits_KNC, features = self._run(self._early, copies_NCHW)
        return logits_KNC.to(torch.float32, copy=True), features

    def _others(self, features: Tensor) -> Tensor:
        logits_MNC: Tensor = self._run(self._late, features)
        return logits_MNC.to(torch.float32, copy=True)
