"""ONNX Runtime on the processor: one file with trunk, heads and normalisation, run without PyTorch.

Making the file needs PyTorch; running it needs NumPy and ONNX Runtime alone (extra `onnx`).
"""

from __future__ import annotations

import importlib
import math
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from smoothheads.certify.engines.base import ENGINES, Engine, Floats, Network
from smoothheads.certify.engines.conversion import FILES, ONNX, ConvertedModel, identify, obtain
from smoothheads.errors import CheckpointError, ConfigError, MissingExtraError, reason

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig
    from smoothheads.models.multihead import MultiHead

EXTRA: Final = "onnx"
INPUT, OUTPUT = "pixels", "logits"
CLOSE: Final = 1e-3  # conversion may move a logit by this fraction of the largest one
OPSET: Final = 17


@ENGINES.register
class OnnxEngine(Engine):
    """ONNX Runtime on the processor, in float32; needs the extra `onnx`.

    The certificate is for exactly the bytes of the file, under this version of ONNX Runtime.
    """

    name: ClassVar[str] = "onnxruntime"
    any_batch = True

    def __init__(self, config: CertifyConfig, network: Network) -> None:
        self.threads = config.threads
        with network.cache.opened() as folder:
            (model,) = network.cache.given or (_convert_cached(network, folder),)
            self.converted = (model,)
            self._session = _open_session(model.model, config.threads)
        weights = model.facts["head_weights"]
        self.heads, self.classes = model.facts["heads"], model.facts["classes"]
        self.head_weights = None if weights is None else tuple(weights)

    def logits(self, samples_NCHW: Floats) -> Floats:
        logits_LNC: Floats = self._session.run([OUTPUT], {INPUT: samples_NCHW})[0]
        return logits_LNC

    def fingerprint(self) -> str:
        return self.converted[0].sha256

    def describe(self) -> dict[str, Any]:
        return {
            "engine": "onnxruntime",
            "precision": "float32",
            "device": "cpu",
            "threads": self.threads,
            "onnxruntime": runtime().__version__,
            "artefact": {"sha256": self.fingerprint()},
        }


def _convert_cached(network: Network, root: Path) -> ConvertedModel:
    model, info = network.module, network.info
    weights = model.ensemble_weights
    identity = identify(model, info.shape, ONNX) | {
        "heads": len(model.heads),
        "classes": info.classes,
        "head_weights": None if weights is None else weights.tolist(),
    }

    def build(folder: Path) -> dict[str, Any]:
        convert(model, info.shape, folder / FILES[ONNX][0])
        return {"versions": {"onnxruntime": runtime().__version__}}

    return obtain(root, "onnxruntime-float32", identity, build)


def convert(model: MultiHead, shape: tuple[int, int, int], path: Path) -> None:
    """Writes the file: pixels [N, C, H, W] in [0, 1] in, logits [L, N, classes] out, for any N.

    Raises ConfigError for a network that ONNX cannot express, or whose logits come out as others.
    """
    import torch

    from smoothheads.models.multihead import temporary_mode

    runtime()
    example = torch.linspace(0, 1, 2 * math.prod(shape)).reshape(2, *shape)
    with temporary_mode(model, training=False), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        expected = model(example).numpy()
        try:
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
        except Exception as error:  # whatever a network's code or the exporter raises
            raise _not_convertible(reason(error)) from error
    (got,) = _open_session(path, 1).run([OUTPUT], {INPUT: example.numpy()})
    allowed = CLOSE * float(np.nanmax(np.abs(expected)))
    # NaN must stay NaN; sampling refuses it with the reason.
    if not np.allclose(got, expected, rtol=0, atol=allowed, equal_nan=True):
        raise _not_convertible("its logits differ from PyTorch's")


def runtime() -> ModuleType:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        raise MissingExtraError("onnxruntime", EXTRA) from None


def _open_session(path: Path, threads: int) -> Any:
    library = runtime()
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    try:
        return library.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own exceptions have no common base
        raise CheckpointError(
            f"{path} is no ONNX network that can be run ({reason(error)[:120]}): export it again."
        ) from None


def _not_convertible(why: str) -> ConfigError:
    return ConfigError(f"ONNX cannot express this network ({why}): use engine torch.")
