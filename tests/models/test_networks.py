from __future__ import annotations

import pytest
import torch
from torch import nn

from smoothheads.errors import ConfigError
from smoothheads.models.networks import (
    BasicBlock,
    Block,
    Bottleneck,
    Chain,
    Conv,
    lenet,
    resnet_cifar,
    resnet_imagenet,
    stage,
)


def chain() -> Chain:
    stage = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    layers = {"first": nn.Linear(2, 2), "stage": stage, "last": nn.Linear(2, 3)}
    return Chain(layers, {"input": "first", "middle": "stage.2", "last": "last"})


@pytest.mark.parametrize(
    ("cut", "trunk_names", "head_names"),
    [
        ("input", [], ["first", "stage.0", "stage.2", "last"]),
        ("middle", ["first", "stage.0"], ["stage.2", "last"]),
        ("last", ["first", "stage.0", "stage.2"], ["last"]),
    ],
)
def test_both_sides_keep_their_names_and_weights(
    cut: str, trunk_names: list[str], head_names: list[str]
) -> None:
    network = chain()
    trunk, head = network.split(cut)
    assert [n.removesuffix(".weight") for n, _ in trunk.named_parameters() if "weight" in n] == trunk_names
    assert [n.removesuffix(".weight") for n, _ in head.named_parameters() if "weight" in n] == head_names
    assert list(trunk.parameters()) + list(head.parameters()) == list(network.parameters())
    x = torch.randn(4, 2)
    assert torch.equal(head(trunk(x)), network(x))


def test_an_unknown_cut_is_refused() -> None:
    with pytest.raises(ConfigError, match="'middle'"):
        chain().split("midle")


def test_convolutions_are_drawn_with_the_variance_of_their_fan_out() -> None:
    torch.manual_seed(0)
    weight = Conv(16, 512, 3).weight
    expected = 2 / (9 * 512)
    assert weight.var().item() == pytest.approx(expected, rel=0.03)
    assert abs(weight.mean().item()) < 3 * (expected / weight.numel()) ** 0.5
    kurtosis = (weight / weight.std()).pow(4).mean().item()
    assert kurtosis == pytest.approx(3, abs=0.1), "a uniform distribution has 1.8"


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_a_block_whose_branch_is_silent_is_the_rectified_identity(block: Block) -> None:
    made = block(8 * block.expansion, 8, 1).eval()
    last = made.bn3 if isinstance(made, Bottleneck) else made.bn2
    nn.init.zeros_(last.weight)
    x = torch.randn(2, 8 * block.expansion, 4, 4)
    kept = x.clone()
    assert torch.equal(made(x), x.relu())
    assert torch.equal(x, kept), "a block must not write into its input"


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_only_the_first_block_of_a_stage_changes_the_shape(block: Block) -> None:
    made = stage(block, 4, 8, 3, stride=2)
    assert made(torch.rand(1, 4, 8, 8)).shape == (1, 8 * block.expansion, 4, 4)
    shortcuts = [isinstance(b.get_submodule("downsample"), nn.Identity) for b in made]
    assert shortcuts == [False, True, True]


def test_the_linear_layers_of_mnist() -> None:
    shapes = {name: tuple(p.shape) for name, p in lenet((1, 28, 28), 10).named_parameters()}
    assert shapes["fc1.weight"] == (500, 800)
    assert shapes["fc2.weight"] == (10, 500)


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 32, 32), (1, 17, 29)])
def test_other_image_sizes(shape: tuple[int, int, int]) -> None:
    assert lenet(shape, 3)(torch.rand(2, *shape)).shape == (2, 3)


def test_images_too_small_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"16x16.*not 8x8.*resnet8"):
        lenet((1, 8, 8), 10)


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
