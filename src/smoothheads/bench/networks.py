"""The networks that are timed: trained ones, and such with fresh weights, on which speed does not depend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from torch import nn

from smoothheads.bench.plain import MeanOfHeads
from smoothheads.certify.engines.artefact import Training
from smoothheads.data import ArrayDataset, DataInfo, Dataset, SubsetConfig, from_arrays, load, load_test
from smoothheads.errors import one_of
from smoothheads.models import ARCHITECTURES, ModelConfig, MultiHead
from smoothheads.models import build as build_model
from smoothheads.runs.certify import certification_images
from smoothheads.runs.layout import engines_folder, open_checkpoint
from smoothheads.types import Pixels

CLASSES: Final = 10
Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Size:
    arch: str
    shape: Shape


NETWORKS: Final = {
    "resnet110": Size("resnet110", (3, 32, 32)),
    "resnet20": Size("resnet20", (3, 32, 32)),
    "resnet8": Size("resnet8", (3, 16, 16)),
    "lenet": Size("lenet", (1, 28, 28)),
    "digits": Size("resnet8", (1, 8, 8)),
}


@dataclass(frozen=True, slots=True)
class Bench:
    """A network, test images, and what gives the images that int8 is calibrated with."""

    model: MultiHead
    images: Dataset
    training: Training

    @property
    def info(self) -> DataInfo:
        return self.images.info

    def image(self) -> Pixels:
        return self.images.image(0)


@dataclass(frozen=True, slots=True)
class TrainedNetwork:
    """A checkpoint or run; `root` is where its data lie, if not where they lay in training."""

    folder: Path
    root: str | None = None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def engines(self) -> Path:
        """Where its converted forms are kept."""
        return engines_folder(self.folder)

    def bench(self, images: int) -> Bench:
        """With so many of its test images, spread evenly."""
        checkpoint = open_checkpoint(self.folder)
        data = replace(checkpoint.config.data, root=self.root or checkpoint.config.data.root)
        subset = SubsetConfig(every=max(1, len(load_test(data)) // images), first=images)
        dataset = certification_images(checkpoint, data, subset)
        return Bench(checkpoint.model, dataset, lambda: load(data).train)


def named(name: str) -> Size:
    if name not in NETWORKS:
        raise one_of("network", name, NETWORKS)
    return NETWORKS[name]


def make(size: Size, heads: int, *, images: int = 300) -> Bench:
    """In eval mode, and random images to calibrate and to train with."""
    data = random_images(size.shape, images)
    config = ModelConfig(arch=size.arch, heads=heads, cut=ARCHITECTURES.get(size.arch).cut)
    return Bench(build(config, size.shape).eval(), data, lambda: data)


def build(config: ModelConfig, shape: Shape) -> MultiHead:
    half = (0.5,) * shape[0]
    return build_model(config, shape=shape, classes=CLASSES, mean=half, std=half, seed=0)


def random_images(shape: Shape, count: int) -> ArrayDataset:
    pixels = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
    return from_arrays(pixels, np.arange(count) % CLASSES, classes=CLASSES, name="random")


def separate(model: MultiHead) -> list[nn.Module]:
    """The network of each head with the trunk to itself, logits [N, C]: what an ensemble of whole networks
    costs, and here also what it answers."""
    return [MeanOfHeads(MultiHead(model.trunk, [head], model.normalize)).eval() for head in model.heads]


def ideal(channels: int = 256, side: int = 16, layers: int = 4) -> Bench:
    """Nothing but wide convolutions, which engines compute best: what they reach at most here."""
    data = random_images((3, side, side), 32)
    trunk: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU()]
    for _ in range(layers):
        trunk += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))
    return Bench(MultiHead(nn.Sequential(*trunk), [head]).eval(), data, lambda: data)
