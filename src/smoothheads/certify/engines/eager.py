"""PyTorch: folded, channels last, optionally compiled or in bfloat16."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothheads import device as devices
from smoothheads.certify.engines.blocks import BlockEngine
from smoothheads.certify.engines.fold import folded
from smoothheads.certify.soundness import fingerprint
from smoothheads.errors import ConfigError
from smoothheads.models.grouped import group
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise

Module = Callable[[Tensor], Any]


class TorchEngine(BlockEngine):
    """Works on a copy of its own in eval mode, so that the model stays as it is and may even be trained on. A
    module that cannot be copied is put into eval mode and used itself."""

    def __init__(
        self,
        model: MultiHead,
        noise: Noise,
        *,
        classes: int,
        shape: tuple[int, int, int],
        precision: str = "float32",
        device: torch.device,
        threads: int = 1,
        compiled: bool = False,
        grouped: bool = False,
        blocks_per_pass: int = 1,
    ) -> None:
        super().__init__(model, noise, classes=classes, threads=threads, blocks_per_pass=blocks_per_pass)
        self.precision, self.device = precision, device
        self.compiled, self.grouped = compiled, grouped
        self.tolerance = 1e-3 if precision == "float32" else 5e-2
        network: nn.Module = (group(model) if grouped else _own(model)).eval()
        lean = folded(network, shape)
        self.folded = lean is not None
        self.model: nn.Module = (lean or network).to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        with torch.inference_mode():
            blank = self._prepared(np.zeros((self.copies_per_pass, *shape), dtype=np.float32))
            self._network = self._ready(self.model, blank)

    def describe(self) -> dict[str, Any]:
        emulated = self.precision == "bfloat16" and not devices.computes_bfloat16(self.device)
        return {
            "engine": "torch",
            "precision": self.precision,
            "device": str(self.device),
            "threads": self.threads,
            "folded": self.folded,
            "compiled": self.compiled,
            "grouped": self.grouped,
        } | ({"emulated": True} if emulated else {})

    def fingerprint(self) -> str:
        return fingerprint(self.model)

    def _prepared(self, copies: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(copies).contiguous(memory_format=torch.channels_last).to(self.device)

    def _logits(self, copies_NCHW: Tensor) -> Tensor:
        with devices.autocast(self.device, self.precision):
            logits_LNC: Tensor = self._network(copies_NCHW.contiguous(memory_format=torch.channels_last))
        return logits_LNC.to(torch.float32, copy=True)  # a network may hand out the same memory twice

    def _ready(self, network: Module, example: Tensor) -> Module:
        """The function that computes passes like `example`: compiled, if it is to be."""
        if not self.compiled:
            return network
        compiled: Module = torch.compile(network, dynamic=False, options={"freezing": True})
        try:
            with devices.threads(self.threads), devices.autocast(self.device, self.precision):
                compiled(example.contiguous(memory_format=torch.channels_last))
        except Exception as error:  # a missing C++ compiler, or code that cannot be compiled
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            raise ConfigError(
                "a network and a machine that torch.compile works with", reason, "set compile to off"
            ) from error
        return compiled


def _own(model: MultiHead) -> MultiHead:
    try:
        return copy.deepcopy(model)
    except Exception:  # somebody's own module may hold what cannot be copied
        return model
