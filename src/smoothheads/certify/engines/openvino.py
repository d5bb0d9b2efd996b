"""OpenVINO on the processor: float32, bfloat16 where it is native, int8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothheads.certify.engines import extra
from smoothheads.certify.engines.artefact import Artefact
from smoothheads.certify.engines.blocks import BlockEngine
from smoothheads.errors import ConfigError
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise

HINTS: Final = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}  # int8: of what is not quantised


class OpenVinoEngine(BlockEngine):
    """Runs one artefact, compiled for passes of one size; it cannot change afterwards."""

    def __init__(
        self,
        model: MultiHead,
        noise: Noise,
        artefact: Artefact,
        *,
        classes: int,
        shape: tuple[int, int, int],
        precision: str = "float32",
        threads: int = 1,
        blocks_per_pass: int = 1,
    ) -> None:
        super().__init__(model, noise, classes=classes, threads=threads, blocks_per_pass=blocks_per_pass)
        self.artefact, self.precision = artefact, precision
        self.tolerance = 1e-3 if precision == "float32" else 5e-2
        self._request = self._compiled(artefact, shape)

    def describe(self) -> dict[str, Any]:
        made = self.artefact.facts
        return {
            "engine": "openvino",
            "precision": self.precision,
            "device": "cpu",
            "threads": self.threads,
            "openvino": extra.openvino().__version__,
            "artefact": self.artefact.describe(),
        } | ({"calibration": made["calibration"]} if "calibration" in made else {})

    def fingerprint(self) -> str:
        return self.artefact.sha256

    def _prepared(self, copies: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(copies)

    def _logits(self, copies_NCHW: Tensor) -> Tensor:
        logits_LNC = infer(self._request, copies_NCHW)[0]
        return torch.from_numpy(np.array(logits_LNC, dtype=np.float32))  # a copy: the next pass overwrites it

    def _compiled(self, artefact: Artefact, shape: Sequence[int]) -> Any:
        """A request for blocks of inputs of this shape."""
        core = extra.openvino().Core()
        if self.precision == "bfloat16":
            _require_bfloat16(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
        network = core.read_model(artefact.model)
        network.reshape([self.copies_per_pass, *shape])
        compiled = core.compile_model(network, "CPU", _settings(self.precision, self.threads))
        return compiled.create_infer_request()


def infer(request: Any, batch: Tensor) -> Any:
    """The network's outputs, by number, in memory that the next pass overwrites."""
    return request.infer([batch.contiguous().numpy()], share_inputs=True, share_outputs=True)


def _settings(precision: str, threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_PRECISION_HINT": HINTS[precision],
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # several processes would be pinned to the same core
    }


def _require_bfloat16(capabilities: list[str]) -> None:
    if "BF16" not in capabilities:
        raise ConfigError(
            "a processor that computes bfloat16 natively",
            f"one with {', '.join(capabilities)}",
            "use float32 or int8",
        )
