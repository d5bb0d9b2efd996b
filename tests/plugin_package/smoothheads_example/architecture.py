"""An architecture: two linear layers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from smoothheads.models import Architecture

if TYPE_CHECKING:
    from torch import nn


def network(shape: tuple[int, int, int], classes: int) -> nn.Module:
    from torch import nn  # not before it is built: settings are read without torch

    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 64), nn.ReLU(), nn.Linear(64, classes))


two_layers = Architecture(name="two-layers", network=network, cut="2", image=(1, 8, 8))
