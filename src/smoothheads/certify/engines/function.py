"""Black boxes: ONNX files, estimators and plain functions that nobody converted, called with NumPy images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from smoothheads.certify.engines.base import ENGINES, Engine, Floats, Network
from smoothheads.errors import ConfigError
from smoothheads.models.adapters import BlackBox

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig


@ENGINES.register
class FunctionEngine(Engine):
    """Calls a classifier that is no module of PyTorch. `make_certifier` chooses it for every black box."""

    name: ClassVar[str] = "function"
    any_batch = True

    def __init__(self, config: CertifyConfig, network: Network) -> None:
        if not isinstance(network.model, BlackBox):
            raise ConfigError(
                "Engine function is for ONNX files and functions: leave engine auto, or use torch."
            )
        self._classifier, self.threads = network.model, config.threads
        self._classifier.use_threads(config.threads)
        # Called once, so that what does not fit is refused before any image is certified.
        self._classifier.prepare(network.info)
        self.classes, self.heads = network.info.classes, 1

    def logits(self, samples_NCHW: Floats) -> Floats:
        logits_NC = self._classifier.logits(samples_NCHW)
        return logits_NC[None]  # one head

    def fingerprint(self) -> str:
        return self._classifier.fingerprint()

    def describe(self) -> dict[str, Any]:
        return {
            "engine": "function",
            "precision": "float32",
            "threads": self.threads,
            **self._classifier.describe(),
        }
