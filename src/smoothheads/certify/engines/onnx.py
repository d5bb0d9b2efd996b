"""ONNX Runtime on the processor: one file with trunk, heads and normalisation, run without PyTorch.

Making the file needs PyTorch; running it needs NumPy and ONNX Runtime alone (extra `onnx`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from smoothheads.certify.engines.base import ENGINES, Floats, Network
from smoothheads.certify.engines.conversion import (
    FILES,
    ONNX,
    ConvertedEngine,
    ConvertedModel,
    Facts,
    convert_checked,
    obtain,
)
from smoothheads.errors import import_extra
from smoothheads.models.adapters import open_session

if TYPE_CHECKING:
    from torch import Tensor

    from smoothheads.certify.config import CertifyConfig
    from smoothheads.models.multihead import MultiHead

INPUT, OUTPUT = "pixels", "logits"
OPSET: Final = 17


@ENGINES.register
class OnnxEngine(ConvertedEngine):
    """ONNX Runtime on the processor, in float32; needs the extra `onnx`.

    The certificate is for exactly the bytes of the file, under this version of ONNX Runtime.
    """

    name: ClassVar[str] = "onnxruntime"
    package: ClassVar[str] = "onnxruntime"
    format: ClassVar[str] = ONNX
    any_batch = True

    def convert(self, network: Network, root: Path) -> ConvertedModel:
        model, info = network.module, network.info
        weights = model.ensemble_weights
        # What the engine must know of the network when there is no PyTorch to ask it.
        identity = self.identify(network) | {
            "heads": len(model.heads),
            "classes": info.classes,
            "head_weights": None if weights is None else weights.tolist(),
        }

        def build(folder: Path) -> Facts:
            convert(model, info.shape, folder / FILES[ONNX][0])
            return {"versions": {"onnxruntime": _runtime().__version__}}

        return obtain(root, "onnxruntime-float32", identity, build)

    def open(self, model: ConvertedModel, config: CertifyConfig, network: Network) -> None:  # noqa: ARG002
        self.version = _runtime().__version__
        self._session = _open(model.model, config.threads)
        weights = model.facts["head_weights"]
        self.heads, self.classes = model.facts["heads"], model.facts["classes"]
        self.head_weights = None if weights is None else tuple(weights)

    def logits(self, samples_NCHW: Floats) -> Floats:
        return _run(self._session, samples_NCHW)


def convert(model: MultiHead, shape: tuple[int, int, int], path: Path) -> None:
    """Writes the file: pixels [N, C, H, W] in [0, 1] in, logits [L, N, classes] out, for any N."""

    def export(model: MultiHead, example: Tensor) -> Any:
        import torch

        torch.onnx.export(
            model,
            (example,),
            str(path),
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_axes={INPUT: {0: "samples"}, OUTPUT: {1: "samples"}},
            opset_version=OPSET,
            dynamo=False,
        )
        return _open(path, 1)

    _runtime()  # a missing extra is noticed before the network is traced
    convert_checked(model, shape, "ONNX cannot express this network", export, _run)


def _runtime() -> Any:
    return import_extra("onnxruntime", "onnx")


def _open(path: Path, threads: int) -> Any:
    return open_session(path.read_bytes(), threads, str(path))


def _run(session: Any, samples_NCHW: Floats) -> Floats:
    logits_LNC: Floats = session.run([OUTPUT], {INPUT: samples_NCHW})[0]
    return logits_LNC
