"""An engine: the plain network in double precision."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from smoothheads.certify.engines.base import BlockEngine, EngineConfig, Network

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Float64(EngineConfig):
    """PyTorch in double precision: slow, and another base classifier than in single."""

    name: ClassVar[str] = "float64"

    def build(self, network: Network) -> Float64Engine:
        return Float64Engine(self, network)


class Float64Engine(BlockEngine):
    """Votes, checks and the order of noise are the base class's; this says what computes the logits."""

    def __init__(self, config: Float64, network: Network) -> None:
        super().__init__(config, network)
        self.model = copy.deepcopy(network.model).double().eval()

    def _prepared(self, samples: NDArray[np.float32]) -> Tensor:
        import torch

        return torch.from_numpy(samples).double()

    def _logits(self, samples_NCHW: Tensor) -> Tensor:
        logits_LNC: Tensor = self.model(samples_NCHW)
        return logits_LNC.float()

    def describe(self) -> dict[str, Any]:
        return {"engine": "float64", "precision": "float64", "device": "cpu", "threads": self.threads}

    def fingerprint(self) -> str:
        from smoothheads.certify import soundness

        return soundness.whole_state(self.model)
