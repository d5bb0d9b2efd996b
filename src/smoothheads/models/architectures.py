"""The architectures by name, and the one way to build them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from smoothheads.errors import ConfigError
from smoothheads.registry import Registry
from smoothheads.seeding import drawing

if TYPE_CHECKING:
    from torch import nn

    from smoothheads.models.config import ModelConfig
    from smoothheads.models.multihead import MultiHead
    from smoothheads.models.normalize import Normalize

Shape = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A network with fresh weights from torch's generator, for images of a shape and a number of classes.

    Any module will do: it is cut after a submodule, or where its own `split(cut)` says. Somebody else's
    package adds one with `ARCHITECTURES.register(Architecture(name=..., ...))` or an entry point of the group
    `smoothheads.architectures`.
    """

    name: str
    network: Callable[[Shape, int], nn.Module]
    """From (channels, height, width) and classes to a module that gives logits [N, C]."""
    cut: str
    """Where the trunk ends unless the user says: before the last stage, where the SOME authors cut."""
    image: Shape = (3, 32, 32)
    """The images that it is made for; their cost is what `info` tells."""
    classes: int = 10


ARCHITECTURES: Registry[Architecture] = Registry("architecture", "smoothheads.architectures")


def _resnet_cifar(depth: int, shape: Shape, classes: int) -> nn.Module:
    from smoothheads.models.resnet_cifar import resnet_cifar  # imports torch, so not before it is built

    return resnet_cifar(depth, shape, classes)


def _resnet_imagenet(depth: int, shape: Shape, classes: int) -> nn.Module:
    from smoothheads.models.resnet_imagenet import resnet_imagenet

    return resnet_imagenet(depth, shape, classes)


def _lenet(shape: Shape, classes: int) -> nn.Module:
    from smoothheads.models.lenet import lenet

    return lenet(shape, classes)


def _denoiser(shape: Shape, classes: int) -> nn.Module:
    from smoothheads.models.denoiser import Denoiser

    del classes
    return Denoiser(shape[0])


for depth in (8, 14, 20, 32, 44, 56, 110):
    network = partial(_resnet_cifar, depth)
    ARCHITECTURES.register(Architecture(name=f"resnet{depth}", network=network, cut="stage2"))
for depth in (18, 34, 50):
    network, image = partial(_resnet_imagenet, depth), (3, 224, 224)
    ARCHITECTURES.register(
        Architecture(name=f"resnet{depth}", network=network, cut="layer3", image=image, classes=1000)
    )
ARCHITECTURES.register(Architecture(name="denoiser", network=_denoiser, cut="input"))
ARCHITECTURES.register(Architecture(name="lenet", network=_lenet, cut="convs", image=(1, 28, 28)))


def list_architectures(pattern: str = "*") -> list[str]:
    """Names like `pattern`, in which * stands for anything."""
    return [name for name in ARCHITECTURES.names() if fnmatchcase(name, pattern)]


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
    from smoothheads.models.cut import split
    from smoothheads.models.multihead import MultiHead
    from smoothheads.models.normalize import Normalize

    network = ARCHITECTURES.get(config.arch).network
    if len(mean) != shape[0]:
        raise ConfigError(f"{shape[0]} channel means", str(len(mean)), "give one mean and std per channel")
    parts = []
    for k in range(config.heads):
        with drawing(seed, "init", k):
            parts.append(split(network(shape, classes), config.cut))
    trunk, heads = parts[0][0], [head for _, head in parts]
    if config.normalize_heads:
        built = MultiHead(trunk, [_behind(Normalize(mean, std), head) for head in heads])
    else:
        built = MultiHead(trunk, heads, Normalize(mean, std) if config.normalize else None)
    built.config = config
    return built


def _behind(normalize: Normalize, head: nn.Module) -> nn.Module:
    """The head's layers keep their names."""
    from torch import nn

    if type(head).forward is not nn.Sequential.forward:
        raise ConfigError(
            "a chain of layers behind each head's own normalisation",
            type(head).__name__,
            "join networks that normalise alike",
        )
    return nn.Sequential(OrderedDict([("normalize", normalize), *head.named_children()]))
