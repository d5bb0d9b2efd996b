"""The architectures by name, and the one way to build them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from torch import nn

from smoothheads.config import ModelConfig
from smoothheads.errors import ConfigError, one_of
from smoothheads.models import resnet_cifar, resnet_imagenet
from smoothheads.models.chain import Chain
from smoothheads.models.lenet import lenet
from smoothheads.models.multihead import MultiHead
from smoothheads.models.normalize import Normalize
from smoothheads.models.randomness import drawing

Shape = tuple[int, int, int]
Builder = Callable[[Shape, int], Chain]

ARCHITECTURES: Final[Mapping[str, Builder]] = {
    **{f"resnet{d}": partial(resnet_cifar.resnet_cifar, d) for d in resnet_cifar.DEPTHS},
    **{f"resnet{d}": partial(resnet_imagenet.resnet_imagenet, d) for d in resnet_imagenet.STAGES},
    "lenet": lenet,
}
DEFAULT_CUTS: Final[Mapping[str, str]] = {
    **{f"resnet{d}": "stage2" for d in resnet_cifar.DEPTHS},
    **{f"resnet{d}": "layer3" for d in resnet_imagenet.STAGES},
    "lenet": "convs",
}
"""Where the SOME authors cut: before the last stage."""


def build(
    config: ModelConfig,
    *,
    shape: Shape,
    classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int,
) -> MultiHead:
    """A network with fresh weights, a pure function of the arguments; no other random number is disturbed.

    Head k is that of a network drawn from the seed's k-th stream, and the trunk is the first network's: the
    same seed gives the same head whatever the number of heads and the cut.
    """
    if config.arch not in ARCHITECTURES:
        raise one_of("architecture", config.arch, ARCHITECTURES)
    if len(mean) != shape[0]:
        raise ConfigError(f"{shape[0]} channel means", str(len(mean)), "give one mean and std per channel")
    parts = [_draw(config, shape, classes, seed, k) for k in range(config.heads)]
    trunk, heads = parts[0][0], [head for _, head in parts]
    if config.normalize_heads:
        return MultiHead(trunk, [_behind(Normalize(mean, std), head) for head in heads])
    return MultiHead(trunk, heads, Normalize(mean, std) if config.normalize else None)


def _draw(config: ModelConfig, shape: Shape, classes: int, seed: int, k: int) -> tuple[nn.Module, nn.Module]:
    with drawing(seed, "init", k):
        return ARCHITECTURES[config.arch](shape, classes).split(config.cut)


def _behind(normalize: Normalize, head: nn.Module) -> nn.Module:
    """The head's layers keep their names."""
    return nn.Sequential(OrderedDict([("normalize", normalize), *head.named_children()]))
