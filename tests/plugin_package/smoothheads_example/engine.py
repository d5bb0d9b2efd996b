"""An engine: the plain network in double precision."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

from smoothheads.certify import soundness
from smoothheads.certify.engines import Engine, Network
from smoothheads.models.multihead import MultiHead

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from smoothheads.certify.config import CertifyConfig


class Float64Engine(Engine):
    """PyTorch in double precision: slow, and another base classifier than in single."""

    name: ClassVar[str] = "float64"
    any_batch = True

    def __init__(self, config: CertifyConfig, network: Network) -> None:
        assert isinstance(network.model, MultiHead)
        self.use_network(network)
        self.threads = config.threads
        self.model = copy.deepcopy(network.model).double().eval()

    def logits(self, samples_NCHW: NDArray[np.float32]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            logits_LNC: NDArray[np.float32] = (
                self.model(torch.from_numpy(samples_NCHW).double()).float().numpy()
            )
        return logits_LNC

    def describe(self) -> dict[str, Any]:
        return {"engine": "float64", "precision": "float64", "device": "cpu", "threads": self.threads}

    def fingerprint(self) -> str:
        return soundness.state_fingerprint(self.model)
