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
    identify,
    imported,
    obtain,
    versions_of,
)
from smoothheads.errors import CheckpointError, reason

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
    any_batch = True

    def convert(self, network: Network, root: Path) -> ConvertedModel:
        model, info = network.module, network.info
        weights = model.ensemble_weights
        # What the engine must know of the network when there is no PyTorch to ask it.
        identity = identify(model, info.shape, ONNX) | {
            "heads": len(model.heads),
            "classes": info.classes,
            "head_weights": None if weights is None else weights.tolist(),
        }

        def build(folder: Path) -> Facts:
            convert(model, info.shape, folder / FILES[ONNX][0])
            return versions_of("onnxruntime")

        return obtain(root, "onnxruntime-float32", identity, build)

    def open(self, model: ConvertedModel, config: CertifyConfig, network: Network) -> None:  # noqa: ARG002
        self._session = open_session(model.model, config.threads)
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
        return open_session(path, 1)

    # A missing extra is noticed before the network is traced.
    imported("onnxruntime")
    convert_checked(model, shape, "ONNX cannot express this network", export, _run)


def _run(session: Any, samples_NCHW: Floats) -> Floats:
    logits_LNC: Floats = session.run([OUTPUT], {INPUT: samples_NCHW})[0]
    return logits_LNC


def open_session(path: Path, threads: int) -> Any:
    """Returns a session for the file; raises CheckpointError for one that ONNX Runtime cannot run."""
    library = imported("onnxruntime")
    # One thread pool of a fixed size, so that sums are in the same order everywhere; warnings stay away.
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    try:
        return library.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own exceptions have no common base
        raise CheckpointError(
            f"{path} is no ONNX network that can be run ({reason(error)[:120]}): export it again."
        ) from None
