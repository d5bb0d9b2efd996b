"""OpenVINO on the processor: float32, bfloat16 where it is native, int8.

Its packages are the extra `openvino`, imported when they are used.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.engines.base import ENGINES, BlockEngine, Engine, EngineConfig, Network
from smoothheads.certify.engines.lazy import Lazy, check_lazy
from smoothheads.errors import ConfigError, MissingExtraError
from smoothheads.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from smoothheads.certify.engines.artefact import Artefact

EXTRA: Final = "openvino"
HINTS: Final = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}  # int8: of what is not quantised


@ENGINES.register
@dataclass(frozen=True, kw_only=True)
class OpenVino(EngineConfig):
    """OpenVINO on the processor; needs the extra of that name."""

    name: ClassVar[str] = "openvino"

    precision: Literal["float32", "bfloat16", "int8"] = "float32"
    """Another precision is another base classifier. int8: quantised, with ranges from noisy training images
    at sigma."""
    lazy_consensus: bool = False
    """With the aggregation consensus-K: heads beyond the K-th only see samples on which the K disagree. In int8 the
    two parts are quantised one by one, which is another base classifier than consensus-K in int8."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lazy(self.blocks_per_pass, lazy=self.lazy_consensus)

    def build(self, network: Network) -> Engine:
        from smoothheads.certify.engines import convert

        int8, store = self.precision == "int8", network.store
        with store.opened() as folder:
            parts = store.given or convert.converted(network, folder, int8=int8, lazy=self.lazy_consensus)
            return (LazyOpenVinoEngine if self.lazy_consensus else OpenVinoEngine)(self, network, *parts)

    @classmethod
    def offer(cls, wanted: EngineConfig) -> Self | None:
        given = wanted.settings()
        possible = given["device"] == "cpu" and given["precision"] != "float16" and installed()
        ours = {each.name: given[each.name] for each in fields(cls)}
        return cls(**ours) if given["precision"] == "int8" or possible else None


class OpenVinoEngine(BlockEngine):
    """Runs one artefact, compiled for passes of one size; it cannot change afterwards."""

    def __init__(self, config: OpenVino, network: Network, artefact: Artefact) -> None:
        super().__init__(config, network)
        self.artefacts, self.precision = (artefact,), config.precision
        self.tolerance = 1e-3 if self.precision == "float32" else 5e-2
        self._request = self._compiled(artefact, network.info.shape)

    def describe(self) -> dict[str, Any]:
        made = self.artefacts[0]
        return {
            "engine": "openvino",
            "precision": self.precision,
            "device": "cpu",
            "threads": self.threads,
            "openvino": openvino().__version__,
            "artefact": made.describe(),
        } | ({"calibration": made.facts["calibration"]} if "calibration" in made.facts else {})

    def fingerprint(self) -> str:
        return self.artefacts[0].sha256

    def _prepared(self, samples: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(samples)

    def _logits(self, samples_NCHW: Tensor) -> Tensor:
        logits_LNC = infer(self._request, samples_NCHW)[0]
        return torch.from_numpy(np.array(logits_LNC, dtype=np.float32))  # a copy: the next pass overwrites it

    def _compiled(self, artefact: Artefact, shape: Sequence[int]) -> Any:
        """A request for blocks of inputs of this shape."""
        core = openvino().Core()
        if self.precision == "bfloat16":
            _require_bfloat16(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
        network = core.read_model(artefact.model)
        network.reshape([self.samples_per_pass, *shape])
        compiled = core.compile_model(network, "CPU", _settings(self.precision, self.threads))
        return compiled.create_infer_request()


class LazyOpenVinoEngine(Lazy, OpenVinoEngine):
    """Lazy consensus on OpenVINO: runs the artefacts of both parts; the function is theirs, and nobody
    else's."""

    def __init__(self, config: OpenVino, network: Network, early: Artefact, late: Artefact) -> None:
        OpenVinoEngine.__init__(self, config, network, early)
        self.artefacts = (early, late)
        features = self._request.get_compiled_model().output(1).shape
        self._late = self._compiled(late, features[1:])
        self._start(network)

    def describe(self) -> dict[str, Any]:
        early, late = self.artefacts
        parts = {"early": early.describe(), "late": late.describe()}
        return OpenVinoEngine.describe(self) | {"artefact": parts} | self._described()

    def fingerprint(self) -> str:
        both = " ".join(artefact.sha256 for artefact in self.artefacts)
        return hashlib.sha256(both.encode()).hexdigest()

    def _first(self, samples_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        outputs = infer(self._request, samples_NCHW)
        return torch.from_numpy(np.array(outputs[0])), torch.from_numpy(outputs[1])

    def _others(self, features: Tensor) -> Tensor:
        return torch.from_numpy(np.array(infer(self._late, features)[0]))


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


def installed() -> bool:
    return importlib.util.find_spec("openvino") is not None


def openvino() -> ModuleType:
    return _imported("openvino")


def nncf() -> ModuleType:
    module = _imported("nncf")
    module.set_log_level("ERROR")
    return module


def _imported(package: str) -> ModuleType:
    # Both report each import to their makers through this package; without it they keep quiet.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtraError(package, EXTRA) from None
