"""Lazy consensus on OpenVINO."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothheads.certify.engines.artefact import Artefact
from smoothheads.certify.engines.lazy import LazyConsensusEngine
from smoothheads.certify.engines.openvino import OpenVinoEngine, infer
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise


class LazyOpenVinoEngine(LazyConsensusEngine, OpenVinoEngine):
    """Runs the artefacts of both parts; the function is theirs, and nobody else's."""

    def __init__(
        self,
        model: MultiHead,
        noise: Noise,
        early: Artefact,
        late: Artefact,
        *,
        rule: str,
        shape: tuple[int, int, int],
        **settings: Any,
    ) -> None:
        OpenVinoEngine.__init__(self, model, noise, early, shape=shape, **settings)
        self._parts = {"early": early, "late": late}
        features = self._request.get_compiled_model().output(1).shape
        self._late = self._compiled(late, features[1:])
        self._start(rule, shape)

    def describe(self) -> dict[str, Any]:
        parts = {part: artefact.describe() for part, artefact in self._parts.items()}
        return OpenVinoEngine.describe(self) | {"artefact": parts} | self._described()

    def fingerprint(self) -> str:
        both = " ".join(artefact.sha256 for artefact in self._parts.values())
        return hashlib.sha256(both.encode()).hexdigest()

    def _first(self, copies_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        outputs = infer(self._request, copies_NCHW)
        return torch.from_numpy(np.array(outputs[0])), torch.from_numpy(outputs[1])

    def _others(self, features: Tensor) -> Tensor:
        return torch.from_numpy(np.array(infer(self._late, features)[0]))
