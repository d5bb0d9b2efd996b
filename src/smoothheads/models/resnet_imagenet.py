"""ResNets for large images, with the parameter names of torchvision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import nn

from smoothheads.models.chain import Chain
from smoothheads.models.layers import BasicBlock, Block, Bottleneck, Conv, stage

STAGES: Final[Mapping[int, tuple[Block, tuple[int, int, int, int]]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
}
CUTS: Final[Mapping[str, str]] = {
    "input": "conv1",
    "layer1": "layer2",
    "layer2": "layer3",
    "layer3": "layer4",
    "layer4": "avgpool",
    "fc": "fc",
}


def resnet_imagenet(depth: int, shape: tuple[int, int, int], classes: int) -> Chain:
    block, blocks = STAGES[depth]
    layers: dict[str, nn.Module] = {
        "conv1": Conv(shape[0], 64, 7, stride=2),
        "bn1": nn.BatchNorm2d(64),
        "relu": nn.ReLU(inplace=True),
        "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
    }
    inputs = 64
    for index, count in enumerate(blocks):
        width = 64 * 2**index
        layers[f"layer{index + 1}"] = stage(block, inputs, width, count, stride=1 if index == 0 else 2)
        inputs = width * block.expansion
    layers |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(inputs, classes)}
    return Chain(layers, CUTS)
