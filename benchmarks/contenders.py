"""Sets up the contenders: the plain loops, the Adversarial Robustness Toolbox (ART), and our engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from benchmarks.timing import BATCH, Job, build_network, random_images
from torch import nn

from benchmarks import plain
from smoothheads import device as devices
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import ConversionCache
from smoothheads.certify.votes import VoteCounter
from smoothheads.data import DataInfo, Dataset, SubsetConfig, load, load_test
from smoothheads.errors import ConfigError, one_of
from smoothheads.models import ARCHITECTURES, ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.runs.certify import certification_images
from smoothheads.runs.models import engines_folder, open_checkpoint
from smoothheads.smoothed import Smoothed
from smoothheads.types import Phase

PLAIN: Final = "plain loop"
ART_N0: Final = 100
ENGINES: Final[Mapping[str, Mapping[str, Any]]] = {
    "torch": {},
    "torch bfloat16": {"precision": "bfloat16"},
    "openvino float32": {"engine": "openvino"},
    "openvino bfloat16": {"engine": "openvino", "precision": "bfloat16"},
    "openvino int8": {"engine": "openvino", "precision": "int8"},
}
"""Settings that differ from the torch engine in float32."""
NETWORKS: Final[Mapping[str, tuple[str, tuple[int, int, int]]]] = {
    "resnet110": ("resnet110", (3, 32, 32)),
    "resnet20": ("resnet20", (3, 32, 32)),
    "resnet8": ("resnet8", (3, 16, 16)),
    "lenet": ("lenet", (1, 28, 28)),
    "digits": ("resnet8", (1, 8, 8)),
}
"""Architecture and image shape [C, H, W] of the networks with fresh weights."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A network, test images, and a function that loads the images with which int8 is calibrated."""

    model: MultiHead
    images: Dataset
    training: Callable[[], Dataset]

    @property
    def info(self) -> DataInfo:
        return self.images.info


def fresh(network: str, heads: int, *, images: int = 300) -> Bench:
    """Returns one of NETWORKS with fresh weights, in eval mode, and random images."""
    if network not in NETWORKS:
        raise one_of("network", network, NETWORKS)
    arch, shape = NETWORKS[network]
    data = random_images(shape, images)
    config = ModelConfig(arch=arch, heads=heads, cut=ARCHITECTURES.get(arch).cut)
    return Bench(build_network(config, shape).eval(), data, lambda: data)


def trained(folder: Path, images: int, root: str | None = None) -> tuple[Bench, CertifyConfig, Path]:
    """Opens a checkpoint or run with `images` of its test images, spread evenly.

    Returns the network and images, a certification at the sigma of the training, and the folder for converted
    networks. `root` is the folder of the data, if it has moved since the training.
    """
    checkpoint = open_checkpoint(folder)
    data = replace(checkpoint.config.data, root=root or checkpoint.config.data.root)
    subset = SubsetConfig(every=max(1, len(load_test(data)) // images), first=images)
    dataset = certification_images(checkpoint, subset, root=root)
    config = CertifyConfig(sigma=checkpoint.config.train.sigma, seed=0)  # repeatable
    return Bench(checkpoint.model, dataset, lambda: load(data).train), config, engines_folder(folder)


@dataclass(slots=True)
class Field:
    """The contenders that could be set up, and why the others could not."""

    jobs: dict[str, Job] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def add(self, name: str, make: Callable[[], Job]) -> None:
        """Adds a contender, or notes in `left_out` why it cannot take part."""
        try:
            self.jobs[name] = make()
        except ConfigError as error:
            self.left_out.append(f"{name} left out: {error}")

    def add_plain(self, bench: Bench, config: CertifyConfig, samples: int) -> tuple[str, ...]:
        """Adds the plain loop with this network and, if it has several heads, with as many whole networks.

        Returns the names of both.
        """
        networks: dict[str, nn.Module] = {PLAIN: plain.MeanOfHeads(bench.model)}
        if len(bench.model.heads) > 1:
            networks[f"{len(bench.model.heads)} networks"] = plain.Ensemble(separate(bench.model))
        for name, network in networks.items():
            self.jobs[name] = plain_job(network, bench, config, samples)
        return tuple(networks)


def separate(model: MultiHead) -> list[nn.Module]:
    """Returns one network per head, each with its own trunk; together they cost what an ensemble costs."""
    return [plain.MeanOfHeads(MultiHead(model.trunk, [head], model.normalize)).eval() for head in model.heads]


def plain_job(network: nn.Module, bench: Bench, config: CertifyConfig, samples: int) -> Job:
    """Returns a job that counts the votes of `samples` noisy images in the plain loop."""
    x_CHW = torch.from_numpy(bench.images.image(0)).float() / bench.info.grid.max_value
    network.eval()

    def votes(_: int) -> int:
        with devices.threads(config.threads):
            plain.sample_noise(
                network, x_CHW, samples, sigma=config.sigma, batch=BATCH, classes=bench.info.classes
            )
        return samples

    return votes


def engine_job(counter: VoteCounter, bench: Bench, samples: int) -> Job:
    """Returns a job that counts the votes of `samples` noisy images with fresh noise in every turn."""
    image, size = bench.images.image(0), counter.noise.block_size
    blocks = -(-samples // size)

    def votes(turn: int) -> int:
        return counter.votes(image, 0, Phase.ESTIMATION, turn * blocks, samples).n

    return votes


def smoothed(bench: Bench, config: CertifyConfig, engine: str, folder: Path) -> Smoothed:
    """Returns the smoothed classifier on one of ENGINES; converted networks are kept in `folder`."""
    if engine not in ENGINES:
        raise one_of("engine", engine, ENGINES)
    config = config.changed(**ENGINES[engine])
    if config.precision == "bfloat16" and not devices.computes_bfloat16(devices.parse(config.device)):
        # An emulated precision is slower than float32, and says nothing about processors that have it.
        raise ConfigError("This processor does not compute bfloat16 natively: use float32 or int8.")
    return Smoothed(bench.model, bench.info, config, cache=ConversionCache(folder, bench.training))


def art_classifier(
    network: nn.Module, info: DataInfo, *, sigma: float, n0: int = ART_N0, alpha: float = 0.001
) -> Any:
    """Returns ART's smoothed classifier around a network with logits [N, C], used as its documentation says.

    Args:
        network: The base classifier.
        info: Image shape and number of classes.
        sigma: Standard deviation of the noise.
        n0: Samples that choose the class.
        alpha: Probability of a wrong certificate.
    """
    try:
        import statsmodels  # noqa: F401  (ART's bound needs it, but imports it only when it is computed)
        from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing
    except ImportError as error:
        raise ConfigError(f"ART cannot be imported ({error}): pip install 'smoothheads[bench]'.") from None
    return PyTorchRandomizedSmoothing(
        model=network,
        loss=nn.CrossEntropyLoss(),
        input_shape=info.shape,
        nb_classes=info.classes,
        device_type="cpu",
        sample_size=n0,
        scale=sigma,
        alpha=alpha,
    )


def art_certify(classifier: Any, image: Any, n: int) -> tuple[int, float]:
    """Returns ART's class and radius of an image with pixels in [0, 1], from n0 + n votes."""
    pixels = np.asarray(image, dtype=np.float32)[None]
    prediction, radius = classifier.certify(pixels, n=n, batch_size=BATCH)
    return int(prediction[0]), float(radius[0])


def art_job(bench: Bench, config: CertifyConfig, samples: int) -> Job:
    """Returns a job in which ART certifies one image with `samples` votes."""
    n0 = min(ART_N0, samples // 2)
    network = plain.MeanOfHeads(bench.model)
    classifier = art_classifier(network, bench.info, sigma=config.sigma, n0=n0, alpha=config.alpha)
    image = bench.images.image(0) / bench.info.grid.max_value

    def votes(_: int) -> int:
        with devices.threads(config.threads):
            art_certify(classifier, image, samples - n0)
        return samples

    return votes
