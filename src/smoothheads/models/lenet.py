"""LeNet as the smoothing literature uses it on MNIST: two 5x5 convolutions, two linear layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import nn

from smoothheads.errors import ConfigError
from smoothheads.models.chain import Chain

CUTS: Final[Mapping[str, str]] = {"input": "conv1", "convs": "flatten", "fc": "fc2"}
SMALLEST: Final = 16


def lenet(shape: tuple[int, int, int], classes: int) -> Chain:
    """Initialised as PyTorch does; the first linear layer takes whatever size the image leaves."""
    channels, height, width = shape
    if min(height, width) < SMALLEST:
        raise ConfigError(
            f"images of at least {SMALLEST}x{SMALLEST} pixels for lenet",
            f"{height}x{width}",
            "choose a resnet, such as resnet8",
        )
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(channels, 20, 5),
        "relu1": nn.ReLU(inplace=True),
        "pool1": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(20, 50, 5),
        "relu2": nn.ReLU(inplace=True),
        "pool2": nn.MaxPool2d(2),
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(50 * _side(height) * _side(width), 500),
        "relu3": nn.ReLU(inplace=True),
        "fc2": nn.Linear(500, classes),
    }
    return Chain(layers, CUTS)


def _side(pixels: int) -> int:
    """What two unpadded 5x5 convolutions, each followed by halving, leave of a side."""
    return ((pixels - 4) // 2 - 4) // 2
