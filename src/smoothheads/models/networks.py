"""The networks of the smoothing literature: ResNets for small and large images, and LeNet.

Each is a chain of named layers with named places where it can be cut into trunk and head. Parameters carry
the names of the usual checkpoints (torchvision's where it has the network). Import this module only to build
a network; `architectures` has them by name without importing torch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from torch import Tensor, nn

from smoothheads.errors import ConfigError, one_of

Shape = tuple[int, int, int]


class Chain(nn.Sequential):
    """A network that is a chain of named layers.

    `cuts` maps the name of a cut to the first module of the head: a layer, or one block of a layer
    (`layer3.9`).
    """

    def __init__(self, layers: Mapping[str, nn.Module], cuts: Mapping[str, str]) -> None:
        super().__init__(OrderedDict(layers))
        self.cuts = dict(cuts)

    def split(self, cut: str) -> tuple[nn.Module, nn.Module]:
        """Returns trunk and head, which share this network's layers: head(trunk(x)) is what it computes.

        Layers and blocks keep their names on both sides, so that checkpoints of the whole network fit.
        """
        if cut not in self.cuts:
            raise one_of("cut", cut, self.cuts)
        layer, _, block = self.cuts[cut].partition(".")
        layers = list(self.named_children())
        start = [name for name, _ in layers].index(layer)
        trunk, head = layers[:start], layers[start:]
        if block:
            # The cut is inside a stage: its first blocks go to the trunk, the others stay in the head.
            blocks = list(head[0][1].named_children())
            trunk.append((layer, _sequential(blocks[: int(block)])))
            head[0] = (layer, _sequential(blocks[int(block) :]))
        return _sequential(trunk) if trunk else nn.Identity(), _sequential(head)


def _sequential(layers: Iterable[tuple[str, nn.Module]]) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


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
        # y = relu(F(x) + shortcut(x)), eq. 1 and 2 of He et al.
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


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(Conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


def stage(block: Block, inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    """Returns `blocks` residual blocks; the first one changes resolution and width."""
    outputs = width * block.expansion
    return nn.Sequential(
        block(inputs, width, stride), *(block(outputs, width, stride=1) for _ in range(blocks - 1))
    )


def resnet_cifar(depth: int, shape: Shape, classes: int) -> Chain:
    """Returns a ResNet for small images (He et al. 2016): 6n + 2 layers, three stages of 16, 32, 64 channels.

    The shortcuts that change the resolution are 1x1 convolutions. The last layer averages whatever is left of
    the image, so that 8x8 to 32x32 pixels and beyond all work.
    """
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
    # The trunk ends in front of the named layer; the third stage can be cut in its middle.
    middle = (blocks + 1) // 2  # of an odd number of blocks the trunk has one more
    cuts = {
        "input": "conv1",
        "stage1": "layer2",
        "stage2": "layer3",
        "stage3-mid": f"layer3.{middle}" if middle < blocks else "avgpool",
        "fc": "fc",
    }
    return Chain(layers, cuts)


STAGES: Final[Mapping[int, tuple[Block, tuple[int, int, int, int]]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
}


def resnet_imagenet(depth: int, shape: Shape, classes: int) -> Chain:
    """Returns a ResNet for large images, with the parameter names of torchvision."""
    block, blocks = STAGES[depth]
    layers: dict[str, nn.Module] = {
        "conv1": Conv(shape[0], 64, 7, stride=2),
        "bn1": nn.BatchNorm2d(64),
        "relu": nn.ReLU(inplace=True),
        "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
    }
    # Four stages, each of which doubles the width and, from the second on, halves the resolution.
    inputs = 64
    for index, count in enumerate(blocks):
        width = 64 * 2**index
        layers[f"layer{index + 1}"] = stage(block, inputs, width, count, stride=1 if index == 0 else 2)
        inputs = width * block.expansion
    layers |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(inputs, classes)}
    cuts = {"input": "conv1", "fc": "fc", "layer4": "avgpool"}
    return Chain(layers, cuts | {f"layer{k}": f"layer{k + 1}" for k in (1, 2, 3)})


def lenet(shape: Shape, classes: int) -> Chain:
    """Returns LeNet as the smoothing literature has it on MNIST: two 5x5 convolutions, two linear layers.

    It is initialised as PyTorch does, and takes images of any size from 16x16 on.
    """
    channels, height, width = shape
    if min(height, width) < 16:
        raise ConfigError(f"lenet needs images of at least 16x16 pixels, not {height}x{width}: take resnet8.")
    # Two unpadded 5x5 convolutions, each followed by halving, leave this much of the image.
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(channels, 20, 5),
        "relu1": nn.ReLU(inplace=True),
        "pool1": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(20, 50, 5),
        "relu2": nn.ReLU(inplace=True),
        "pool2": nn.MaxPool2d(2),
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(50 * rows * columns, 500),
        "relu3": nn.ReLU(inplace=True),
        "fc2": nn.Linear(500, classes),
    }
    return Chain(layers, {"input": "conv1", "convs": "flatten", "fc": "fc2"})
