"""A network that is a chain of named layers, with named places where it can be cut into trunk and head."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from torch import nn

from smoothheads.errors import one_of


class Chain(nn.Sequential):
    """`cuts` maps a cut to the first module of the head: a layer, or one block of a layer (`layer3.9`)."""

    def __init__(self, layers: Mapping[str, nn.Module], cuts: Mapping[str, str]) -> None:
        super().__init__(OrderedDict(layers))
        self.cuts = dict(cuts)

    def split(self, cut: str) -> tuple[nn.Module, nn.Module]:
        """Trunk and head, which share this network's layers: head(trunk(x)) is what the network computes.

        Layers and blocks keep their names on both sides.
        """
        if cut not in self.cuts:
            raise one_of("cut", cut, self.cuts)
        layer, _, block = self.cuts[cut].partition(".")
        layers = list(self.named_children())
        at = [name for name, _ in layers].index(layer)
        trunk, head = layers[:at], layers[at:]
        if block:
            blocks = list(head[0][1].named_children())
            trunk.append((layer, _sequential(blocks[: int(block)])))
            head[0] = (layer, _sequential(blocks[int(block) :]))
        return _sequential(trunk) if trunk else nn.Identity(), _sequential(head)


def _sequential(layers: Iterable[tuple[str, nn.Module]]) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))
