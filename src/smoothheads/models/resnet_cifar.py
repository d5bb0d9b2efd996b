"""ResNets for small images (He et al. 2016): 6n + 2 layers, three stages of 16, 32 and 64 channels."""

from __future__ import annotations

from torch import nn

from smoothheads.models.chain import Chain
from smoothheads.models.layers import BasicBlock, Conv, stage


def resnet_cifar(depth: int, shape: tuple[int, int, int], classes: int) -> Chain:
    """The shortcuts that change resolution are 1x1 convolutions; the last layer averages whatever is left of
    the image, so that 8x8 to 32x32 pixels and beyond all work."""
    blocks = (depth - 2) // 6
    layers: dict[str, nn.Module] = {
        "conv1": Conv(shape[0], 16, 3),
        "bn1": nn.BatchNorm2d(16),
        "relu": nn.ReLU(inplace=True),
        "layer1": stage(BasicBlock, 16, 16, blocks, stride=1),
        "layer2": stage(BasicBlock, 16, 32, blocks, stride=2),
        "layer3": stage(BasicBlock, 32, 64, blocks, stride=2),
        "avgpool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "fc": nn.Linear(64, classes),
    }
    return Chain(layers, _cuts(blocks))


def _cuts(blocks: int) -> dict[str, str]:
    middle = (blocks + 1) // 2  # of an odd number the trunk has one more
    return {
        "input": "conv1",
        "stage1": "layer2",
        "stage2": "layer3",
        "stage3-mid": f"layer3.{middle}" if middle < blocks else "avgpool",
        "fc": "fc",
    }
