"""The architectures by name, and the one way to build them. Torch is imported when a network is built."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from smoothheads.errors import ConfigError
from smoothheads.models.config import ModelConfig
from smoothheads.registry import Registry
from smoothheads.seeding import drawing

if TYPE_CHECKING:
    from torch import nn

    from smoothheads.models.multihead import MultiHead

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
    """Makes a module that gives logits [N, C] from (channels, height, width) and the number of classes."""
    cut: str
    """Where the trunk ends by default: before the last stage, where the SOME authors cut."""
    image: Shape = (3, 32, 32)
    """The images that it is made for; `info` shows its cost on them."""
    classes: int = 10


ARCHITECTURES: Registry[Architecture] = Registry("architecture", "smoothheads.architectures")


def _network(function: str, *arguments: int) -> nn.Module:
    from smoothheads.models import networks  # imports torch

    network: nn.Module = getattr(networks, function)(*arguments)
    return network


def _denoiser(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    from smoothheads.models.denoiser import Denoiser

    return Denoiser(shape[0])


for depth in (8, 14, 20, 32, 44, 56, 110):
    ARCHITECTURES.register(
        Architecture(name=f"resnet{depth}", network=partial(_network, "resnet_cifar", depth), cut="stage2")
    )
for depth in (18, 34, 50):
    ARCHITECTURES.register(
        Architecture(
            name=f"resnet{depth}",
            network=partial(_network, "resnet_imagenet", depth),
            cut="layer3",
            image=(3, 224, 224),
            classes=1000,
        )
    )
ARCHITECTURES.register(
    Architecture(name="lenet", network=partial(_network, "lenet"), cut="convs", image=(1, 28, 28))
)
ARCHITECTURES.register(Architecture(name="denoiser", network=_denoiser, cut="input"))


def list_architectures(pattern: str = "*") -> list[str]:
    """Returns the names like `pattern`, in which * stands for anything."""
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
    """Returns a network with fresh weights, a pure function of the arguments.

    Args:
        config: architecture, number of heads L and cut.
        shape: (channels, height, width) of the images.
        classes: number of classes C.
        mean: mean of each channel, for the normalisation inside the network.
        std: standard deviation of each channel.
        seed: head k is that of a network drawn from the seed's k-th stream, and the trunk is the first
            network's, so the same seed gives the same head whatever the number of heads and the cut.
    """
    from torch import nn

    from smoothheads.models.cut import split
    from smoothheads.models.multihead import MultiHead, Normalize

    network = ARCHITECTURES.get(config.arch).network
    if len(mean) != shape[0]:
        raise ConfigError(f"Images of {shape[0]} channels need as many means as channels, not {len(mean)}.")
    # Network k is drawn from the k-th stream and cut; its head becomes head k.
    trunks, heads = [], []
    for k in range(config.heads):
        with drawing(seed, "init", k):
            trunk, head = split(network(shape, classes), config.cut)
        trunks.append(trunk)
        heads.append(head)
    normalize: nn.Module | None = Normalize(mean, std) if config.normalize else None
    if config.normalize_heads:
        # Networks that were trained apart keep their own normalisation, in front of each head's layers.
        for k, head in enumerate(heads):
            if type(head).forward is not nn.Sequential.forward:
                raise ConfigError(
                    f"A {type(head).__name__} is no chain of layers that a normalisation of its own could be "
                    "put in front of: join networks that normalise alike."
                )
            layers = [("normalize", Normalize(mean, std)), *head.named_children()]
            heads[k] = nn.Sequential(OrderedDict(layers))
        normalize = None
    # The trunk is the first network's.
    built = MultiHead(trunks[0], heads, normalize)
    built.config = config
    if config.denoiser_sigma is not None:
        from smoothheads.models.denoiser import Denoiser, denoised

        with drawing(seed, "denoiser"):
            front = Denoiser(shape[0])
        return denoised(built, front, config.denoiser_sigma)
    return built
