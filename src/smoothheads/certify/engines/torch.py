"""PyTorch: folded, channels last, optionally compiled or in half precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from smoothheads import device as devices
from smoothheads.certify import soundness
from smoothheads.certify.engines import cuda
from smoothheads.certify.engines.base import (
    ENGINES,
    BlockEngine,
    Engine,
    EngineConfig,
    Network,
    check_float16,
)
from smoothheads.certify.engines.lazy import Lazy, check_lazy
from smoothheads.errors import ConfigError, duration, reason
from smoothheads.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from smoothheads.models.multihead import MultiHead

Module = Callable[[Any], Any]

COMPILE_SECONDS, COMPILE_LAYER_SECONDS = 10.0, 0.6  # measured on networks of 12 to 54 layers
COMPILE_GAIN = 1.15  # measured: 1.0 (LeNet) to 1.25 (ResNet-8)


@ENGINES.register
@dataclass(frozen=True, kw_only=True)
class Torch(EngineConfig):
    """PyTorch on the processor; on cuda it is experimental."""

    name: ClassVar[str] = "torch"

    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Another precision is another base classifier. float16 is for cuda."""
    compile: Literal["auto", "on", "off"] = "off"
    """torch.compile: takes up to a minute; auto: where the run is long enough to pay for it."""
    lazy_consensus: bool = False
    """With the aggregation consensus-K: heads beyond the K-th only see samples on which the K disagree."""
    graphs: bool = True
    """On cuda: passes that are not compiled are recorded once and replayed, which launches faster. Switch it
    off for a network that cannot be recorded."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_float16(self.precision, self.device)
        check_lazy(self.blocks_per_pass, lazy=self.lazy_consensus)

    def build(self, network: Network) -> Engine:
        return (LazyTorchEngine if self.lazy_consensus else TorchEngine)(self, network)

    @classmethod
    def offer(cls, wanted: EngineConfig) -> Self | None:
        given = wanted.settings()
        return None if given["precision"] == "int8" else cls(**given)

    def decide(self, network: Network, seconds: float) -> tuple[Self, str | None]:
        if self.compile != "auto":
            return self, None
        from smoothheads.models.cost import CONVOLUTIONS

        layers = sum(
            isinstance(module, (*CONVOLUTIONS, torch.nn.Linear)) for module in network.model.modules()
        )
        price = COMPILE_SECONDS + COMPILE_LAYER_SECONDS * layers
        saved = seconds * (1 - 1 / COMPILE_GAIN)
        verdict: Literal["on", "off"] = "on" if saved > price else "off"
        costs = (
            f"it would take about {duration(price)} and save about {duration(saved)} of {duration(seconds)}"
        )
        return replace(self, compile=verdict), f"compile {verdict}: {costs}"


class TorchEngine(BlockEngine):
    """Works on a copy of its own in eval mode, so that the model stays as it is and may even be trained on. A
    module that cannot be copied is put into eval mode and used itself.

    On cuda, or with a `recorder`, passes that are not compiled are recorded and replayed. Noise is drawn by
    NumPy on the host, whatever the device.
    """

    in_one_piece: bool = True
    """Whether a pass is one call of the whole network."""

    def __init__(
        self,
        config: Torch,
        network: Network,
        *,
        recorder: cuda.Recorder | None = None,
    ) -> None:
        from smoothheads.certify.engines.rewrite import folded

        super().__init__(config, network)
        device = devices.parse(config.device)
        if recorder is None and config.graphs and device.type == "cuda":
            recorder = cuda.CudaRecorder(device)
        self.precision, self.device, self.recorder = config.precision, device, recorder
        if self.weights_L is not None:
            self.weights_L = self.weights_L.to(device)
        self.compiled = config.compile == "on"
        self.tolerance = 1e-3 if self.precision == "float32" else 5e-2
        own, shape = _own(network.model).eval(), network.info.shape
        lean = folded(own, shape)
        self.folded = lean is not None
        self.model: MultiHead = (lean or own).to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        with torch.inference_mode():
            if self.in_one_piece:
                blank = self._prepared(np.zeros((self.samples_per_pass, *shape), dtype=np.float32))
                self._network = self._made(self.model, blank)

    def describe(self) -> dict[str, Any]:
        emulated = self.precision == "bfloat16" and not devices.computes_bfloat16(self.device)
        return {
            "engine": "torch",
            "precision": self.precision,
            "device": str(self.device),
            "threads": self.threads,
            "folded": self.folded,
            "compiled": self.compiled,
            **({"emulated": True} if emulated else {}),
            **({"graphed": True} if self.recorder is not None and not self.compiled else {}),
        }

    def fingerprint(self) -> str:
        return soundness.whole_state(self.model)

    def _prepared(self, samples: NDArray[np.float32]) -> Tensor:
        # It stays on the host: only the thread that computes knows the stream that a copy must go before.
        block = torch.from_numpy(samples).contiguous(memory_format=torch.channels_last)
        return block.pin_memory() if self.device.type == "cuda" else block

    def _logits(self, samples_NCHW: Tensor) -> Tensor:
        with devices.strict(self.device), devices.autocast(self.device, self.precision):
            logits_LNC: Tensor = self._network(self._sent(samples_NCHW))
        return logits_LNC.to(torch.float32, copy=True)  # a network may hand out the same memory twice

    def _run(self, part: Module, x: Tensor) -> Any:
        with devices.strict(self.device), devices.autocast(self.device, self.precision):
            return part(self._sent(x))

    def _sent(self, x: Tensor) -> Tensor:
        """On the device, channels last if there are channels."""
        layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
        return devices.sent(x, self.device).contiguous(memory_format=layout)

    def _made(self, network: Module, example: Tensor) -> Module:
        """The function that computes passes like `example`: compiled or recorded, if it is to be."""
        if self.compiled:
            return self._compile(network, example)
        if self.recorder is None:
            return network
        example = self._sent(example)
        plain = partial(self._run, network)  # with an autocast of its own, whose cached weights go with it
        with devices.threads(self.threads):
            recorded = cuda.Recorded(plain, [example], self.recorder)
            cuda.require_replay(recorded, plain, example, self.tolerance)
        return recorded

    def _compile(self, network: Module, example: Tensor) -> Module:
        compiled: Module = torch.compile(network, dynamic=False, options={"freezing": True})
        try:
            with devices.threads(self.threads):
                self._run(compiled, example)
        except Exception as error:  # a missing C++ compiler, or code that cannot be compiled
            raise ConfigError(
                "a network and a machine that torch.compile works with", reason(error), "set compile to off"
            ) from error
        return compiled


class LazyTorchEngine(Lazy, TorchEngine):
    """Lazy consensus on PyTorch."""

    in_one_piece = False

    def __init__(self, config: Torch, network: Network, **options: Any) -> None:
        from smoothheads.certify.engines.rewrite import split

        TorchEngine.__init__(self, config, network, **options)
        early, late = split(self.model, network.aggregation)
        with torch.inference_mode():
            blank = self._blank(network.info.shape)
            features = self._run(early, blank)[1]
            self._early, self._late = self._made(early, blank), self._made(late, features)
        self._start(network)

    def describe(self) -> dict[str, Any]:
        return TorchEngine.describe(self) | self._described()

    def _first(self, samples_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        logits_KNC, features = self._run(self._early, samples_NCHW)
        return logits_KNC.to(torch.float32, copy=True), features

    def _others(self, features: Tensor) -> Tensor:
        logits_MNC: Tensor = self._run(self._late, features)
        return logits_MNC.to(torch.float32, copy=True)


def _own(model: MultiHead) -> MultiHead:
    try:
        return copy.deepcopy(model)
    except Exception:  # somebody's own module may hold what cannot be copied
        return model
