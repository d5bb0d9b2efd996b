from __future__ import annotations

import pytest
import torch
from torch import nn

from smoothheads.models.resnet_cifar import resnet_cifar


@pytest.mark.parametrize("depth", [8, 14, 20, 32, 44, 56, 110])
def test_the_depth_counts_the_convolutions_and_the_linear_layer(depth: int) -> None:
    layers = resnet_cifar(depth, (3, 32, 32), 10).named_modules()
    on_the_way = [n for n, m in layers if isinstance(m, (nn.Conv2d, nn.Linear)) and "downsample" not in n]
    assert len(on_the_way) == depth


@pytest.mark.parametrize("side", [8, 16, 28, 32, 64])
def test_any_image_size_works(side: int) -> None:
    network = resnet_cifar(8, (1, side, side), 7).eval()
    assert network(torch.rand(2, 1, side, side)).shape == (2, 7)


def test_the_middle_of_stage_three_leaves_a_sixth_of_the_layers() -> None:
    _, head = resnet_cifar(110, (3, 32, 32), 10).split("stage3-mid")
    layers = [m for m in head.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert len(layers) == 19


def test_linear_layers_keep_the_framework_default() -> None:
    torch.manual_seed(0)
    fc = resnet_cifar(8, (3, 32, 32), 1000).get_submodule("fc")
    assert isinstance(fc, nn.Linear)
    assert fc.weight.abs().max().item() == pytest.approx(1 / 8, rel=0.01), "uniform within 1/sqrt(64)"
