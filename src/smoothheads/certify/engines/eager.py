"""PyTorch: folded, channels last, optionally compiled or in half precision."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothheads import device as devices
from smoothheads.certify.engines.blocks import BlockEngine, Key
from smoothheads.certify.engines.fold import folded
from smoothheads.certify.engines.graph import Recorded, Recorder, require_replay
from smoothheads.certify.soundness import fingerprint
from smoothheads.errors import ConfigError
from smoothheads.models.grouped import group
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import GridNoise, Noise
from smoothheads.noise.on_device import DeviceGridNoise

Module = Callable[[Tensor], Any]


class TorchEngine(BlockEngine):
    """Works on a copy of its own in eval mode, so that the model stays as it is and may even be trained on. A
    module that cannot be copied is put into eval mode and used itself.

    With a `recorder`, passes that are not compiled and the drawing of noise are recorded and replayed. Grid
    noise is drawn where the network is, on the CPU by NumPy; `noise_on_device` makes torch draw it there too.
    """

    in_one_piece: bool = True
    """Whether a pass is one call of the whole network."""

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
        recorder: Recorder | None = None,
        noise_on_device: bool | None = None,
    ) -> None:
        super().__init__(model, noise, classes=classes, threads=threads, blocks_per_pass=blocks_per_pass)
        self.precision, self.device, self.recorder = precision, device, recorder
        if self.weights_L is not None:
            self.weights_L = self.weights_L.to(device)
        self.compiled, self.grouped = compiled, grouped
        self.tolerance = 1e-3 if precision == "float32" else 5e-2
        network: nn.Module = (group(model) if grouped else _own(model)).eval()
        lean = folded(network, shape)
        self.folded = lean is not None
        self.model: nn.Module = (lean or network).to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        on_device = device.type != "cpu" if noise_on_device is None else noise_on_device
        self._device_noise: DeviceGridNoise | None = None
        with torch.inference_mode():
            if on_device and isinstance(noise, GridNoise):
                record = None if recorder is None else partial(Recorded, recorder=recorder)
                self._device_noise = DeviceGridNoise(noise, shape, device, record=record)
                self.background = False  # nobody waits for the device anyway
            if self.in_one_piece:
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
            **({"emulated": True} if emulated else {}),
            **({"graphed": True} if self.recorder is not None and not self.compiled else {}),
        }

    def fingerprint(self) -> str:
        return fingerprint(self.model)

    def _prepared(self, copies: NDArray[np.float32]) -> Tensor:
        # It stays on the host: only the thread that computes knows the stream that a copy must go before.
        block = torch.from_numpy(copies).contiguous(memory_format=torch.channels_last)
        return block.pin_memory() if self.device.type == "cuda" else block

    def _copies(self, keys: Sequence[Key]) -> Tensor:
        if self._device_noise is None:
            return super()._copies(keys)
        return torch.cat([self._device_noise.noisy(*key) for key in keys])

    def _logits(self, copies_NCHW: Tensor) -> Tensor:
        logits_LNC: Tensor = self._run(self._network, copies_NCHW)
        return logits_LNC.to(torch.float32, copy=True)  # a network may hand out the same memory twice

    def _run(self, part: Module, x: Tensor) -> Any:
        x = self._sent(x)
        with devices.strict(self.device), devices.autocast(self.device, self.precision):
            return part(x)

    def _sent(self, x: Tensor) -> Tensor:
        """On the device, channels last if there are channels."""
        layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
        return devices.sent(x, self.device).contiguous(memory_format=layout)

    def _ready(self, network: Module, example: Tensor) -> Module:
        """The function that computes passes like `example`: compiled or recorded, if it is to be."""
        if self.compiled:
            return self._compiled(network, example)
        if self.recorder is None:
            return network
        example = self._sent(example)
        plain = partial(self._run, network)  # with an autocast of its own, whose cached weights go with it
        with devices.threads(self.threads):
            recorded = Recorded(plain, [example], self.recorder)
            require_replay(recorded, plain, example, self.tolerance)
        return recorded

    def _compiled(self, network: Module, example: Tensor) -> Module:
        compiled: Module = torch.compile(network, dynamic=False, options={"freezing": True})
        try:
            with devices.threads(self.threads):
                self._run(compiled, example)
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
