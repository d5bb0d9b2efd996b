"""The plain PyTorch engine: one eager forward pass per block."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothheads.certify.soundness import require_finite, require_function
from smoothheads.device import autocast
from smoothheads.models.aggregate import decide, ensemble, rules
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.types import Phase, Pixels, Votes


class TorchEngine:
    """Puts the model into eval mode. Use it on one model at a time; the weights must not change meanwhile."""

    def __init__(
        self,
        model: MultiHead,
        noise: Noise,
        *,
        classes: int,
        precision: str = "float32",
        device: torch.device,
    ) -> None:
        self.noise, self.classes, self.precision, self.device = noise, classes, precision, device
        self.rules = rules(len(model.heads), weighted=model.ensemble_weights is not None)
        self.model = model.eval().to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._probed = False

    @torch.inference_mode()
    def votes(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Votes:
        logits_LNC = self._sampled(image, index, phase, block)[:, :count]
        classes_RN = decide(logits_LNC, self.model.ensemble_weights)
        counts = torch.zeros(len(self.rules), self.classes, dtype=torch.long, device=self.device)
        counts.scatter_add_(1, classes_RN, torch.ones_like(classes_RN))
        table: np.ndarray[Any, np.dtype[np.int64]] = counts.cpu().numpy()
        return Votes(self.rules, table)

    @torch.inference_mode()
    def scores(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> NDArray[np.float64]:
        logits_LNC = self._sampled(image, index, phase, block)[:, :count]
        p_NC: NDArray[np.float64] = ensemble(logits_LNC).softmax(-1).cpu().numpy()
        return p_NC

    def describe(self) -> dict[str, Any]:
        return {
            "engine": "torch",
            "precision": self.precision,
            "device": str(self.device),
            "threads": torch.get_num_threads(),
        }

    def _sampled(self, image: Pixels, index: int, phase: Phase, block: int) -> Tensor:
        """Finite logits [L, N, C] of one block; the first one is probed."""
        copies = torch.from_numpy(self.noise.noisy(image, index, phase, block)).to(self.device)
        if not self._probed:
            require_function(self._logits, copies, tolerance=1e-3 if self.precision == "float32" else 5e-2)
            self._probed = True
        logits_LNC = self._logits(copies)
        require_finite(logits_LNC, index)
        return logits_LNC

    def _logits(self, copies: Tensor) -> Tensor:
        with autocast(self.device, self.precision):
            logits: Tensor = self.model(copies.contiguous(memory_format=torch.channels_last))
        return logits.float()
