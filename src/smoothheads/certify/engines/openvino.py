"""OpenVINO on the processor: float32, bfloat16 where it is native, or quantised to int8.

Its packages are the extra `openvino`, imported when they are used.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from smoothheads.certify.engines.base import ENGINES, Floats, Network
from smoothheads.certify.engines.conversion import (
    FILES,
    OPENVINO,
    ConvertedEngine,
    ConvertedModel,
    Facts,
    convert_checked,
    obtain,
)
from smoothheads.data import fixed_permutation
from smoothheads.errors import ConfigError, DataError, import_extra
from smoothheads.seeding import derive
from smoothheads.types import Phase

if TYPE_CHECKING:
    import torch

    from smoothheads.certify.config import CertifyConfig
    from smoothheads.models.multihead import MultiHead

HINTS: Final = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}  # int8: of what is not quantised
CALIBRATION: Final = 300  # images; what NNCF advises


@ENGINES.register
class OpenVinoEngine(ConvertedEngine):
    """OpenVINO on the processor; needs the extra of that name. It is compiled for passes of one size."""

    name: ClassVar[str] = "openvino"
    package: ClassVar[str] = "openvino"
    format: ClassVar[str] = OPENVINO
    precisions: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int8")

    def convert(self, network: Network, root: Path) -> ConvertedModel:
        # bfloat16 runs the float32 network. The quantised one depends on the noise's law and sigma as well,
        # and on the training images.
        identity = self.identify(network)
        if self.precision != "int8":
            identity |= {"precision": "float32"}
            return obtain(root, "openvino-float32", identity, lambda folder: _build(folder, network))
        law, sigma = network.noise.law.name, network.noise.sigma
        identity |= {"precision": "int8", "noise": law, "sigma": sigma}
        name = f"openvino-int8-{law}-{sigma!r}"
        return obtain(root, name, identity, lambda folder: _build_int8(folder, network))

    def open(self, model: ConvertedModel, config: CertifyConfig, network: Network) -> None:
        self.use_network(network)
        self.tolerance = 1e-3 if self.precision == "float32" else 5e-2
        self.version = openvino().__version__
        core = openvino().Core()
        if self.precision == "bfloat16":
            _check_bfloat16(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
        # Compiled for passes of one size: other sizes would be other kernels, which round otherwise.
        graph = core.read_model(model.model)
        graph.reshape([config.block, *network.info.shape])
        settings = {
            "INFERENCE_PRECISION_HINT": HINTS[self.precision],
            "INFERENCE_NUM_THREADS": self.threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # several processes would be pinned to the same core
        }
        self._request = core.compile_model(graph, "CPU", settings).create_infer_request()

    def logits(self, samples_NCHW: Floats) -> Floats:
        samples = np.ascontiguousarray(samples_NCHW)
        logits_LNC = self._request.infer([samples], share_inputs=True, share_outputs=True)[0]
        return np.array(logits_LNC, dtype=np.float32)  # a copy: the next pass overwrites it


def _convert(network: Network) -> Any:
    """Returns the float32 graph of the network, for batches of any size."""
    shape = network.info.shape

    def convert(model: MultiHead, example: torch.Tensor) -> Any:
        plain = copy.deepcopy(model).float().cpu()  # the converter patches the module
        return openvino().convert_model(plain, example_input=example, input=[-1, *shape])

    def run(graph: Any, samples_NCHW: Floats) -> Floats:
        compiled = openvino().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        logits_LNC: Floats = compiled(samples_NCHW)[0]
        return logits_LNC

    return convert_checked(network.module, shape, "OpenVINO cannot convert this network", convert, run)


def _build(folder: Path, network: Network) -> Facts:
    """Writes the float32 network."""
    openvino().save_model(_convert(network), folder / FILES[OPENVINO][0], compress_to_fp16=False)
    return {"versions": {"openvino": openvino().__version__}}


def _build_int8(folder: Path, network: Network) -> Facts:
    """Writes the network quantised to int8, for noisy training images at sigma."""
    training, noise = network.cache.training, network.noise
    if training is None:
        raise ConfigError("int8 is calibrated with training images: certify a checkpoint, which knows them.")
    try:
        dataset = training()
    except DataError as error:
        raise DataError(f"int8 is calibrated with training images, which cannot be read: {error}") from error
    # Noisy training images [1, C, H, W], always the same whatever the seed of the certification.
    keyed = noise.law.keyed(noise.sigma, dataset.info.grid, derive(0, "calibration"), 1)
    positions = np.sort(fixed_permutation(len(dataset), "calibration")[:CALIBRATION]).tolist()
    examples = [keyed.noisy(dataset.image(position), position, Phase.PILOT, 0) for position in positions]

    def read(number: int) -> Floats:
        if network.cache.on_progress:
            network.cache.on_progress(number, len(examples))
        return examples[number]

    openvino()
    quantizer = import_extra("nncf", "openvino")
    quantizer.set_log_level("ERROR")
    # Weights of 7 bits: with 8, sums would saturate on processors without VNNI, and be others than elsewhere.
    # Ranges by histogram and biases corrected layer by layer: nearer to float32 than NNCF's quick defaults,
    # for a minute or two, once.
    estimators = importlib.import_module("nncf.quantization.range_estimator").RangeEstimatorParametersSet
    careful = quantizer.AdvancedQuantizationParameters(
        overflow_fix=quantizer.OverflowFix.ENABLE,
        activations_range_estimator_params=estimators.HISTOGRAM,
    )
    with contextlib.redirect_stdout(io.StringIO()):  # its progress bars
        quantized = quantizer.quantize(
            _convert(network),
            quantizer.Dataset(range(len(examples)), read),
            subset_size=len(examples),
            fast_bias_correction=False,
            advanced_parameters=careful,
        )
    openvino().save_model(quantized, folder / FILES[OPENVINO][0], compress_to_fp16=False)
    calibration = {"images": len(examples), "fingerprint": dataset.fingerprint}
    versions = {"openvino": openvino().__version__, "nncf": quantizer.__version__}
    return {"versions": versions, "calibration": calibration}


def _check_bfloat16(capabilities: list[str]) -> None:
    if "BF16" not in capabilities:
        raise ConfigError(
            f"This processor computes {', '.join(capabilities)} but no bfloat16: use float32 or int8."
        )


def openvino() -> Any:
    """Returns the package."""
    # It reports each import to its makers through this package; without it it keeps quiet.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return import_extra("openvino", "openvino")
