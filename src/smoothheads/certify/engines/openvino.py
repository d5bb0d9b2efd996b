"""OpenVINO on the processor: float32, bfloat16 where it is native, or quantised to int8.

Its packages are the extra `openvino`, imported when they are used.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import io
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from smoothheads.certify.engines.base import ENGINES, Engine, Floats, Network, samples_per_pass
from smoothheads.certify.engines.conversion import FILES, OPENVINO, ConvertedModel, Facts, identify, obtain
from smoothheads.data import fixed_permutation
from smoothheads.errors import ConfigError, DataError, MissingExtraError, reason
from smoothheads.seeding import derive
from smoothheads.types import Phase

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig
    from smoothheads.data import Dataset
    from smoothheads.noise import Noise

EXTRA: Final = "openvino"
HINTS: Final = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}  # int8: of what is not quantised
CALIBRATION: Final = 300  # images; what NNCF advises
CLOSE: Final = 1e-3  # conversion may move a logit by this fraction of the largest one


@ENGINES.register
class OpenVinoEngine(Engine):
    """OpenVINO on the processor; needs the extra of that name.

    It runs one converted network, compiled for passes of one size, which cannot change afterwards.
    """

    name: ClassVar[str] = "openvino"
    precisions: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int8")

    def __init__(self, config: CertifyConfig, network: Network) -> None:
        self.use_network(network)
        self.precision, self.threads = config.precision, config.threads
        self.tolerance = 1e-3 if self.precision == "float32" else 5e-2
        with network.cache.opened() as folder:
            (model,) = network.cache.given or (
                _convert_cached(network, folder, int8=self.precision == "int8"),
            )
            self.converted = (model,)
            core = openvino().Core()
            if self.precision == "bfloat16":
                _check_bfloat16(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
            graph = core.read_model(model.model)
            graph.reshape([samples_per_pass(config), *network.info.shape])
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

    def fingerprint(self) -> str:
        return self.converted[0].sha256

    def describe(self) -> dict[str, Any]:
        model = self.converted[0]
        return {
            "engine": "openvino",
            "precision": self.precision,
            "device": "cpu",
            "threads": self.threads,
            "openvino": openvino().__version__,
            "artefact": model.describe(),
        } | ({"calibration": model.facts["calibration"]} if "calibration" in model.facts else {})

    @classmethod
    def is_candidate(cls, config: CertifyConfig) -> bool:
        possible = config.device == "cpu" and not config.compile and installed()
        return config.precision == "int8" or (config.precision in cls.precisions and possible)


def _convert_cached(network: Network, root: Path, *, int8: bool) -> ConvertedModel:
    """Returns the converted network, made if it is not in `root`; bfloat16 runs that of float32.

    The quantised one depends on the network, the noise's law and sigma, and the training images.
    """
    from smoothheads.models.multihead import temporary_mode

    model, noise = network.module, network.noise
    assert model is not None
    with temporary_mode(model, training=False):
        identity = identify(model, network.info.shape, OPENVINO)
        if not int8:
            return obtain(
                root,
                "openvino-float32",
                identity | {"precision": "float32"},
                lambda to: _convert_to(to, network),
            )
        identity |= {"precision": "int8", "noise": noise.law.name, "sigma": noise.sigma}
        name = f"openvino-int8-{noise.law.name}-{noise.sigma!r}"
        return obtain(root, name, identity, lambda to: _quantise_to(to, network))


def _convert_to(folder: Path, network: Network) -> Facts:
    _save(_convert(network), folder)
    return {"versions": _versions(openvino())}


def _quantise_to(folder: Path, network: Network) -> Facts:
    dataset = _training_images(network.cache.training)
    quantizer = nncf()
    examples = list(_calibration(network.noise, dataset))

    def read(example: tuple[int, Floats]) -> Floats:
        if network.cache.on_progress:
            network.cache.on_progress(example[0], len(examples))
        return example[1]

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
            quantizer.Dataset(list(enumerate(examples)), read),
            subset_size=len(examples),
            fast_bias_correction=False,
            advanced_parameters=careful,
        )
    _save(quantized, folder)
    calibration = {"images": len(examples), "fingerprint": dataset.fingerprint}
    return {"versions": _versions(openvino(), quantizer), "calibration": calibration}


def _convert(network: Network) -> Any:
    """Returns the graph; raises ConfigError if OpenVINO does not take the network or computes others."""
    import torch

    shape = network.info.shape
    example = torch.linspace(0, 1, 2 * math.prod(shape)).reshape(2, *shape)
    plain = copy.deepcopy(network.module).to(device="cpu", dtype=torch.float32)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            expected = plain(example).numpy()
            graph = openvino().convert_model(plain, example_input=example, input=[-1, *shape])
            compiled = openvino().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
            got = compiled(example.numpy())[0]
    except ConfigError:
        raise
    except Exception as error:  # whatever a network's code or OpenVINO's frontend raises
        raise _not_convertible(reason(error)) from error
    # NaN must stay NaN; sampling refuses it with the reason.
    allowed = CLOSE * np.nanmax(np.abs(expected))
    if not np.allclose(got, expected, rtol=0, atol=allowed, equal_nan=True):
        raise _not_convertible("its logits differ from PyTorch's")
    return graph


def _save(graph: Any, folder: Path) -> None:
    openvino().save_model(graph, folder / FILES[OPENVINO][0], compress_to_fp16=False)


def _training_images(training: Callable[[], Dataset] | None) -> Dataset:
    if training is None:
        raise ConfigError("int8 is calibrated with training images: certify a checkpoint, which knows them.")
    try:
        return training()
    except DataError as error:
        raise DataError(f"int8 is calibrated with training images, which cannot be read: {error}") from error


def _calibration(like: Noise, dataset: Dataset) -> Iterator[Floats]:
    """Yields noisy training images [1, C, H, W], always the same whatever the seed of the certification."""
    noise = like.law.keyed(like.sigma, dataset.info.grid, derive(0, "calibration"), 1)
    for position in np.sort(fixed_permutation(len(dataset), "calibration")[:CALIBRATION]).tolist():
        yield noise.noisy(dataset.image(position), position, Phase.PILOT, 0)


def _versions(*packages: Any) -> dict[str, str]:
    return {package.__name__: package.__version__ for package in packages}


def _not_convertible(why: str) -> ConfigError:
    return ConfigError(f"OpenVINO cannot convert this network ({why}): use engine torch.")


def _check_bfloat16(capabilities: list[str]) -> None:
    if "BF16" not in capabilities:
        raise ConfigError(
            f"This processor computes {', '.join(capabilities)} but no bfloat16: use float32 or int8."
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
