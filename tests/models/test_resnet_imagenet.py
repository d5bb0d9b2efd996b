from __future__ import annotations

import pytest
import torch

from smoothheads.models.resnet_imagenet import resnet_imagenet


@pytest.mark.parametrize(("depth", "params"), [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032)])
def test_parameter_counts_are_those_of_torchvision(depth: int, params: int) -> None:
    with torch.device("meta"):
        network = resnet_imagenet(depth, (3, 224, 224), 1000)
    assert sum(p.numel() for p in network.parameters()) == params


def test_names_and_shapes_are_those_of_torchvision() -> None:
    with torch.device("meta"):
        shapes = {
            name: tuple(value.shape)
            for name, value in resnet_imagenet(50, (3, 224, 224), 10).state_dict().items()
        }
    assert len(shapes) == 320
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert shapes["layer2.0.conv2.weight"] == (128, 128, 3, 3)
    assert shapes["layer4.2.bn3.running_var"] == (2048,)
    assert shapes["layer4.2.bn3.num_batches_tracked"] == ()
    assert shapes["fc.weight"] == (10, 2048)


def test_the_three_by_three_convolution_carries_the_stride() -> None:
    with torch.device("meta"):
        block = resnet_imagenet(50, (3, 64, 64), 10).get_submodule("layer2.0")
    assert block.get_submodule("conv1").stride == (1, 1)
    assert block.get_submodule("conv2").stride == (2, 2)
