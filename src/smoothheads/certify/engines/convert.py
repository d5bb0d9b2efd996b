"""From a network to OpenVINO's form, in float32 or quantised to 8 bits."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from smoothheads.certify.engines import extra
from smoothheads.certify.engines.artefact import MODEL, Artefact, Facts, identity, obtain
from smoothheads.config import CertifyConfig
from smoothheads.data import DataInfo, Dataset
from smoothheads.data.subset import fixed_permutation
from smoothheads.errors import ConfigError, DataError
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import make_noise
from smoothheads.seeding import derive
from smoothheads.types import Phase

CALIBRATION: Final = 300  # images; what NNCF advises
CLOSE: Final = 1e-3  # of the largest logit

Training = Callable[[], Dataset]


def converted(
    config: CertifyConfig, model: MultiHead, info: DataInfo, root: Path, training: Training | None
) -> Artefact:
    """The artefact of a network in eval mode; bfloat16 runs that of float32.

    The quantised one depends on the network, the noise's law and sigma, and the training images.
    """
    wanted = identity(model, info.shape)
    if config.precision != "int8":
        wanted |= {"precision": "float32"}
        return obtain(root, "openvino-float32", wanted, lambda folder: _float32(model, info, folder))
    wanted |= {"precision": "int8", "noise": config.noise, "sigma": config.sigma}
    name = f"openvino-int8-{config.noise}-{config.sigma!r}"
    return obtain(root, name, wanted, lambda folder: _int8(config, model, info, folder, training))


def _float32(model: MultiHead, info: DataInfo, folder: Path) -> Facts:
    _save(_convert(model, info), folder)
    return {"versions": _versions(extra.openvino())}


def _int8(
    config: CertifyConfig, model: MultiHead, info: DataInfo, folder: Path, training: Training | None
) -> Facts:
    dataset = _training_images(training)
    openvino, nncf = extra.openvino(), extra.nncf()
    examples = list(_calibration(config, dataset))
    # Weights of 7 bits: with 8, sums would saturate on processors without VNNI, and be others than elsewhere.
    safe = nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE)
    with contextlib.redirect_stdout(io.StringIO()):  # its progress bars
        quantized = nncf.quantize(
            _convert(model, info),
            nncf.Dataset(examples),
            subset_size=len(examples),
            advanced_parameters=safe,
        )
    _save(quantized, folder)
    calibration = {"images": len(examples), "fingerprint": dataset.fingerprint}
    return {"versions": _versions(openvino, nncf), "calibration": calibration}


def _convert(model: MultiHead, info: DataInfo) -> Any:
    openvino = extra.openvino()
    plain = copy.deepcopy(model).to(device="cpu", dtype=torch.float32)
    example = torch.linspace(0, 1, 2 * math.prod(info.shape)).reshape(2, *info.shape)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            network = openvino.convert_model(plain, example_input=example, input=[-1, *info.shape])
            expected = plain(example).numpy()
            got = openvino.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(example.numpy())
    except Exception as error:  # whatever a network's code or OpenVINO's frontend raises
        raise _refused(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
    allowed = CLOSE * np.nanmax(np.abs(expected))  # NaN must stay NaN; sampling refuses it with the reason
    if not np.allclose(got[0], expected, rtol=0, atol=allowed, equal_nan=True):
        raise _refused("other logits than PyTorch's")
    return network


def _save(network: Any, folder: Path) -> None:
    extra.openvino().save_model(network, folder / MODEL, compress_to_fp16=False)


def _training_images(training: Training | None) -> Dataset:
    if training is None:
        raise ConfigError("training images to calibrate int8 with", "none", "certify a checkpoint")
    try:
        return training()
    except DataError as error:
        raise DataError(
            f"training images to calibrate int8 with: {error.expected}", error.got, error.remedy
        ) from error


def _calibration(config: CertifyConfig, dataset: Dataset) -> Iterator[NDArray[np.float32]]:
    """Noisy training images [1, C, H, W], always the same whatever the seed of the certification."""
    noise = make_noise(config.noise, config.sigma, dataset.info.grid, derive(0, "calibration"), 1)
    for position in np.sort(fixed_permutation(len(dataset), "calibration")[:CALIBRATION]).tolist():
        yield noise.noisy(dataset.image(position), position, Phase.PILOT, 0)


def _versions(*packages: Any) -> dict[str, str]:
    return {package.__name__: package.__version__ for package in packages}


def _refused(got: str) -> ConfigError:
    return ConfigError("a network that OpenVINO can convert", got, "use the engine torch")
