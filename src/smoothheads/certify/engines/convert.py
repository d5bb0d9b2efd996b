"""From a network to OpenVINO's form, in float32 or quantised to 8 bits."""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothheads.certify.engines.artefact import (
    MODEL,
    Artefact,
    Artefacts,
    Facts,
    OnProgress,
    Training,
    identity,
    obtain,
)
from smoothheads.certify.engines.base import Network
from smoothheads.certify.engines.openvino import nncf, openvino
from smoothheads.certify.engines.rewrite import Early, split
from smoothheads.data import DataInfo, Dataset, fixed_permutation
from smoothheads.errors import ConfigError, DataError, reason
from smoothheads.models.multihead import temporary_mode
from smoothheads.noise import Noise
from smoothheads.seeding import derive
from smoothheads.types import Phase

CALIBRATION: Final = 300  # images; what NNCF advises
CLOSE: Final = 1e-3  # of the largest logit


def converted(network: Network, root: Path, *, int8: bool, lazy: bool) -> Artefacts:
    """The artefact of a network, or those of the two parts that a lazy consensus runs, kept in `root`;
    bfloat16 runs those of float32.

    The quantised one depends on the network, the noise's law and sigma, and the training images.
    """
    with temporary_mode(network.model, training=False):
        if lazy:
            return _parts(network, root, int8=int8)
        name, wanted = _identified(network, int8=int8)
        whole = _Source(network.model, _example(network.info))
        return (obtain(root, name, wanted, lambda folder: _made(folder, whole, network, int8=int8)),)


def _parts(network: Network, root: Path, *, int8: bool) -> Artefacts:
    """Each is quantised by itself, the second one for the features that the quantised first one gives, and is
    refused beside any other first one."""
    info, aggregation = network.info, network.aggregation
    early, late = split(network.model, aggregation)
    name, wanted = _identified(network, int8=int8)
    first = obtain(
        root,
        f"{name}-{aggregation}-early",
        wanted | {"aggregation": aggregation, "part": "early"},
        lambda folder: _made(folder, _Source(early, _example(info)), network, int8=int8),
    )
    second = obtain(
        root,
        f"{name}-{aggregation}-late",
        wanted | {"aggregation": aggregation, "part": "late", "early": first.sha256},
        lambda folder: _made(folder, _Source(late, _features(early, info), first), network, int8=int8),
    )
    return first, second


def _identified(network: Network, *, int8: bool) -> tuple[str, Facts]:
    """Name of the artefact, and what it is made of."""
    wanted, noise = identity(network.model, network.info.shape), network.noise
    if not int8:
        return "openvino-float32", wanted | {"precision": "float32"}
    return (
        f"openvino-int8-{noise.law.name}-{noise.sigma!r}",
        wanted | {"precision": "int8", "noise": noise.law.name, "sigma": noise.sigma},
    )


class _Source(NamedTuple):
    network: nn.Module
    example: Tensor
    early: Artefact | None = None
    """Reads images and gives, as its second output, what the network reads; none: images."""


def _made(folder: Path, source: _Source, network: Network, *, int8: bool) -> Facts:
    if int8:
        return _int8(folder, source, network)
    _save(_convert(source), folder)
    return {"versions": _versions(openvino())}


def _int8(folder: Path, source: _Source, network: Network) -> Facts:
    dataset = _training_images(network.store.training)
    quantizer = nncf()
    examples = _Examples(list(_calibration(network.noise, dataset)), network.store.on_progress)
    transform = None if source.early is None else _second_output(source.early)
    # Weights of 7 bits: with 8, sums would saturate on processors without VNNI, and be others than elsewhere.
    # Ranges by histogram and biases corrected layer by layer: nearer to float32 than NNCF's quick defaults,
    # for a minute or two, once.
    careful = quantizer.AdvancedQuantizationParameters(
        overflow_fix=quantizer.OverflowFix.ENABLE,
        activations_range_estimator_params=_estimators().HISTOGRAM,
    )
    with contextlib.redirect_stdout(io.StringIO()):  # its progress bars
        quantized = quantizer.quantize(
            _convert(source),
            quantizer.Dataset(examples, transform),
            subset_size=len(examples),
            fast_bias_correction=False,
            advanced_parameters=careful,
        )
    _save(quantized, folder)
    calibration = {"images": len(examples), "fingerprint": dataset.fingerprint}
    return {"versions": _versions(openvino(), quantizer), "calibration": calibration}


class _Examples:
    """What is calibrated with; somebody is told while it is read, which happens several times."""

    def __init__(self, examples: list[NDArray[np.float32]], on_progress: OnProgress | None) -> None:
        self.examples, self.on_progress = examples, on_progress

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        for done, example in enumerate(self.examples):
            if self.on_progress:
                self.on_progress(done, len(self))
            yield example


def _estimators() -> Any:
    return importlib.import_module("nncf.quantization.range_estimator").RangeEstimatorParametersSet


def _convert(source: _Source) -> Any:
    plain, example = _plain(source.network), source.example
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            outputs = plain(example)
            shape = [-1, *example.shape[1:]]
            network = openvino().convert_model(plain, example_input=example, input=shape)
            got = _compiled(network)(example.numpy())
    except ConfigError:
        raise
    except Exception as error:  # whatever a network's code or OpenVINO's frontend raises
        raise _refused(reason(error)) from error
    for i, expected in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
        allowed = CLOSE * np.nanmax(np.abs(expected.numpy()))
        # NaN must stay NaN; sampling refuses it with the reason
        if not np.allclose(got[i], expected.numpy(), rtol=0, atol=allowed, equal_nan=True):
            raise _refused("other logits than PyTorch's")
    return network


def _plain(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).to(device="cpu", dtype=torch.float32)


def _example(info: DataInfo) -> Tensor:
    return torch.linspace(0, 1, 2 * math.prod(info.shape)).reshape(2, *info.shape)


@torch.no_grad()
def _features(early: Early, info: DataInfo) -> Tensor:
    features: Tensor = _plain(early)(_example(info))[1]
    return features


def _second_output(artefact: Artefact) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    network = _compiled(artefact.model)
    return lambda images: network(images)[1]


def _compiled(network: Any) -> Any:
    return openvino().compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def _save(network: Any, folder: Path) -> None:
    openvino().save_model(network, folder / MODEL, compress_to_fp16=False)


def _training_images(training: Training | None) -> Dataset:
    if training is None:
        raise ConfigError("training images to calibrate int8 with", "none", "certify a checkpoint")
    try:
        return training()
    except DataError as error:
        raise DataError(f"The training images, which int8 needs, cannot be read: {error}") from error


def _calibration(like: Noise, dataset: Dataset) -> Iterator[NDArray[np.float32]]:
    """Noisy training images [1, C, H, W], always the same whatever the seed of the certification."""
    noise = like.law.keyed(like.sigma, dataset.info.grid, derive(0, "calibration"), 1)
    for position in np.sort(fixed_permutation(len(dataset), "calibration")[:CALIBRATION]).tolist():
        yield noise.noisy(dataset.image(position), position, Phase.PILOT, 0)


def _versions(*packages: Any) -> dict[str, str]:
    return {package.__name__: package.__version__ for package in packages}


def _refused(got: str) -> ConfigError:
    return ConfigError("a network that OpenVINO can convert", got, "use the engine torch")
