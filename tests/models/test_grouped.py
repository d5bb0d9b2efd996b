"""Grouped heads against the loop: in float64, where nothing but the order of additions can differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

from smoothheads.errors import ConfigError
from smoothheads.models.chain import Chain
from smoothheads.models.grouped import (
    GroupedMultiHead,
    faster_heads,
    group,
    group_state,
    ungroup,
    ungroup_state,
)
from smoothheads.models.layers import Bottleneck, Conv, stage
from smoothheads.models.multihead import MultiHead

Make = Callable[..., MultiHead]
SHAPE = (2, 8, 8)
KINDS = [
    *(("resnet8", cut) for cut in ("input", "stage1", "stage2", "stage3-mid", "fc")),
    ("resnet14", "stage3-mid"),  # a shortcut without convolution reads the trunk's output
    ("imagenet", "input"),
    ("imagenet", "layer1"),
]
EVERY = pytest.mark.parametrize(("arch", "cut"), KINDS)


def settled(make: Make, arch: str, cut: str) -> MultiHead:
    """In float64, with running statistics that matter, and counts that differ between the heads."""
    model = narrow(cut) if arch == "imagenet" else make(arch, 3, cut, shape=SHAPE)
    model = model.double().train()
    with torch.no_grad():
        model(images())
        for k, head in enumerate(model.heads):
            for name, buffer in head.named_buffers():
                if name.endswith("num_batches_tracked"):
                    buffer.add_(k)
    return model


def narrow(cut: str) -> MultiHead:
    """What a ResNet-50 is made of, with few channels."""
    torch.manual_seed(0)
    parts = [_narrow().split(cut) for _ in range(3)]
    return MultiHead(parts[0][0], [head for _, head in parts])


def _narrow() -> Chain:
    layers: dict[str, nn.Module] = {
        "conv1": Conv(2, 8, 7, stride=2),
        "bn1": nn.BatchNorm2d(8),
        "relu": nn.ReLU(inplace=True),
        "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
        "layer1": stage(Bottleneck, 8, 3, 2, stride=1),
        "layer2": stage(Bottleneck, 12, 4, 2, stride=2),
        "avgpool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "fc": nn.Linear(16, 10),
    }
    return Chain(layers, {"input": "conv1", "layer1": "layer2"})


def images(count: int = 6, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, *shape, generator=generator, dtype=torch.float64)


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@EVERY
@torch.no_grad()
def test_evaluation(make: Make, arch: str, cut: str) -> None:
    model = settled(make, arch, cut).eval()
    grouped = group(model)
    assert not grouped.training
    for count in (1, 5):
        close(grouped(images(count)), model(images(count)))
    assert grouped(images(5)).shape == (3, 5, 10)


@EVERY
def test_training(make: Make, arch: str, cut: str) -> None:
    """Logits, every gradient, and BatchNorm's statistics afterwards."""
    model = settled(make, arch, cut)
    grouped = group(model)
    direction = torch.randn(3, 6, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for form in (model, grouped):
        (form(images()) * direction).sum().backward()
    close(grouped(images()), model(images()))
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    found = {name: p.grad for name, p in grouped.named_parameters()}
    expected = group_state(gradients, 3)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert gradient is not None
        close(gradient, expected[name])
    for name, value in group_state(model.state_dict(), 3).items():
        close(grouped.state_dict()[name].double(), value.double())


@EVERY
def test_nothing_is_lost_there_and_back(make: Make, arch: str, cut: str) -> None:
    model = settled(make, arch, cut)
    model.weigh(torch.tensor([1.0, -0.5, 0.25]))
    grouped = group(model)
    back = ungroup(grouped)
    assert repr(back) == repr(model)
    same(back.state_dict(), model.state_dict())
    same(ungroup_state(group_state(model.state_dict(), 3), 3), model.state_dict())
    same(group(back).state_dict(), grouped.state_dict())
    with torch.no_grad():
        assert torch.equal(back.eval()(images()), model.eval()(images()))


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype
        assert torch.equal(value, other[name]), name


def test_the_forms_share_nothing(make: Make) -> None:
    model = make("resnet8", 2, "stage2", shape=SHAPE)
    grouped = group(model)
    back = ungroup(grouped)
    places = [[p.data_ptr() for p in form.parameters()] for form in (model, grouped, back)]
    assert len({place for form in places for place in form}) == sum(map(len, places))
    assert all(p.requires_grad and p.is_leaf for form in (grouped, back) for p in form.parameters())


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
@torch.no_grad()
def test_imagenet_networks(make: Make, arch: str) -> None:
    model = make(arch, 2, "layer3", shape=SHAPE).eval()
    torch.testing.assert_close(group(model)(images().float()), model(images().float()), rtol=1e-4, atol=1e-5)


def test_the_first_convolution_is_dense_and_the_others_are_grouped(make: Make) -> None:
    grouped = group(make("resnet14", 3, "stage2"))
    convolutions = {n: m for n, m in grouped.grouped.named_modules() if isinstance(m, nn.Conv2d)}
    groups = {name: conv.groups for name, conv in convolutions.items()}
    assert groups == {
        "layer3.0.conv1": 1,
        "layer3.0.conv2": 3,
        "layer3.0.downsample.0": 1,
        "layer3.1.conv1": 3,
        "layer3.1.conv2": 3,
    }
    assert group(make("resnet8", 3, "input")).grouped.get_submodule("conv1").groups == 1


def test_the_layout_in_memory_stays(make: Make) -> None:
    model = make("resnet8", 2, "stage2").to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    weight = group(model).grouped.get_parameter("layer3.0.conv2.weight")
    assert weight.is_contiguous(memory_format=torch.channels_last)


def head(*layers: nn.Module) -> MultiHead:
    return MultiHead(nn.Identity(), [nn.Sequential(*layers)])


@pytest.mark.parametrize("cut", ["input", "convs"])
def test_lenet_is_refused(make: Make, cut: str) -> None:
    with pytest.raises(ConfigError, match="ResNets to group, got one that does not end in its only linear"):
        group(make("lenet", 2, cut, shape=(1, 28, 28)))


@pytest.mark.parametrize(
    ("model", "got"),
    [
        (MultiHead(nn.Identity(), [nn.Linear(2, 2)]), "Linear"),
        (head(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)), "one with Conv2d"),
        (head(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2)), "one with BatchNorm2d"),
        (head(nn.Flatten(), nn.Dropout(), nn.Linear(8, 2)), "one with Dropout"),
        (head(nn.Flatten()), "only linear layer"),
        (head(nn.Linear(2, 2), nn.ReLU()), "only linear layer"),
        (head(nn.Linear(2, 2, bias=False)), "only linear layer"),
    ],
)
def test_foreign_heads_are_refused(model: MultiHead, got: str) -> None:
    with pytest.raises(ConfigError, match=f"a head of our CIFAR or ImageNet ResNets to group, got .*{got}"):
        group(model)


def test_heads_of_several_structures_are_refused() -> None:
    heads = [nn.Sequential(nn.Flatten(), nn.Linear(4, classes)) for classes in (2, 3)]
    with pytest.raises(ConfigError, match="heads of one structure"):
        group(MultiHead(nn.Identity(), heads))


def clock(passes: Iterable[float]) -> Callable[[], float]:
    """A clock by which the forward passes take that long; the loop and the grouped form alternate."""
    now, ticks = 0.0, []
    for seconds in passes:
        ticks += [now, now + seconds]
        now += seconds
    return iter(ticks).__next__


@pytest.mark.parametrize(
    ("passes", "wins"),
    [
        ([9.0, 1.0, 1.0, 2.0, 1.5, 2.0], False),  # the first turn warms up
        ([1.0, 9.0, 2.0, 1.0, 2.0, 7.0], True),  # a busy moment does not count
        ([1.0, 1.0, 1.0, 0.98, 1.0, 0.98], False),  # too close to call
        ([1.0, 1.0, 1.0, 0.96, 1.0, 0.96], True),
    ],
)
def test_the_faster_form_is_chosen(make: Make, passes: list[float], wins: bool) -> None:
    model = make("resnet8", 2, "stage2", shape=SHAPE).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    chosen = faster_heads(model, SHAPE, 2, repeats=2, clock=clock(passes))
    assert isinstance(chosen, GroupedMultiHead) is wins
    assert wins or chosen is model
    assert chosen.training
    same(model.state_dict(), before)
    chosen(images(2).float()).sum().backward()  # and it can still be trained


def test_what_cannot_be_grouped_stays_a_loop(make: Make) -> None:
    model = make("lenet", 2, "convs", shape=(1, 28, 28))
    assert faster_heads(model, (1, 28, 28), 2) is model
