"""What the ResNets are made of. Parameters carry the names that everyone's checkpoints use."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn


class Conv(nn.Conv2d):
    """Convolution without bias, same padding, weights drawn from N(0, 2 / (kernel^2 * outputs))."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = Conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.relu(self.bn2(self.conv2(y)) + self.downsample(x))
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3 (which carries the stride) and 1x1 convolution around a shortcut."""

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = Conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = Conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = Conv(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _shortcut(inputs, outputs, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        out: Tensor = self.relu(self.bn3(self.conv3(y)) + self.downsample(x))
        return out


Block = type[BasicBlock] | type[Bottleneck]


def stage(block: Block, inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    """`blocks` residual blocks; the first changes resolution and width."""
    outputs = width * block.expansion
    return nn.Sequential(
        block(inputs, width, stride), *(block(outputs, width, stride=1) for _ in range(blocks - 1))
    )


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(Conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
