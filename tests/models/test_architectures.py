"""The contract of every registered architecture, at every cut, with one head and with several."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from smoothheads import cli
from smoothheads.errors import ConfigError
from smoothheads.models import ARCHITECTURES, Architecture, ModelConfig, build, list_architectures
from smoothheads.models.cut import split
from smoothheads.models.multihead import MultiHead
from smoothheads.models.networks import Chain, Conv

CLASSES = 4
Make = Callable[..., MultiHead]


def shape_of(arch: str) -> tuple[int, int, int]:
    large = arch in ("resnet18", "resnet34", "resnet50")
    return (1, 16, 16) if arch == "lenet" else (3, 32, 32) if large else (2, 8, 8)


def constant_weights(conv: Conv) -> None:
    nn.init.constant_(conv.weight, 0.01)


CLASSIFIERS = [arch for arch in ARCHITECTURES.names() if arch != "denoiser"]


def every_cut() -> list[tuple[str, str]]:
    # Normal numbers that nobody looks at would cost every process an import of torch's compiler.
    with torch.device("meta"), patch.object(Conv, "reset_parameters", constant_weights):
        networks = {arch: ARCHITECTURES.get(arch).network(shape_of(arch), CLASSES) for arch in CLASSIFIERS}
    return [(arch, cut) for arch, network in networks.items() for cut in cuts(network)]


def cuts(network: nn.Module) -> list[str]:
    assert isinstance(network, Chain)
    return list(network.cuts)


def images(arch: str) -> Tensor:
    return torch.rand(2, *shape_of(arch), generator=torch.Generator().manual_seed(0))


def logits(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = model.eval()(x)
    return out


@pytest.fixture
def cheap_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the normal numbers of the large networks takes longer than all the rest."""
    monkeypatch.setattr(Conv, "reset_parameters", constant_weights)


@pytest.mark.usefixtures("cheap_weights")
@pytest.mark.parametrize(("arch", "cut"), every_cut())
def test_three_heads(make: Make, arch: str, cut: str) -> None:
    network, x = make(arch, 3, cut, shape=shape_of(arch), classes=CLASSES), images(arch)
    logits_LNC = network(x)
    assert logits_LNC.shape == (3, 2, CLASSES)
    logits_LNC[0].square().sum().backward()
    assert not unreached(network)
    moved = [
        any(bool(p.grad.any()) for p in head.parameters() if p.grad is not None) for head in network.heads
    ]
    assert moved == [True, False, False], "the first head's logits depend on its own weights only"
    assert torch.equal(logits(network, x), logits(network, x))


@pytest.mark.parametrize("arch", CLASSIFIERS)
def test_one_head_is_the_single_network_at_every_cut(arch: str) -> None:
    single, x = ARCHITECTURES.get(arch).network(shape_of(arch), CLASSES), images(arch)
    for cut in cuts(single):
        trunk, head = split(single, cut)
        network = MultiHead(trunk, [head])
        assert torch.equal(logits(network, x)[0], logits(single, x))
        names = [name.removeprefix("trunk.").removeprefix("heads.0.") for name in network.state_dict()]
        assert names == list(single.state_dict())
        network.zero_grad()
        network.train()(x).square().sum().backward()
        assert not unreached(network)


def unreached(network: nn.Module) -> list[str]:
    return [name for name, parameter in network.named_parameters() if parameter.grad is None]


@pytest.mark.parametrize("arch", ["resnet8", "resnet18", "lenet"])
def test_weights_survive_the_state_dict(make: Make, arch: str) -> None:
    cut = "fc" if arch == "lenet" else "input"
    one, other = (make(arch, 2, cut, shape=shape_of(arch), classes=CLASSES, seed=s) for s in (0, 1))
    one(images(arch))  # moves the running statistics
    assert not torch.equal(logits(one, images(arch)), logits(other, images(arch)))
    other.load_state_dict(one.state_dict())
    assert torch.equal(logits(one, images(arch)), logits(other, images(arch)))


@pytest.mark.parametrize("arch", ["resnet8", "resnet18", "lenet"])
def test_memory_layout_does_not_matter(make: Make, arch: str) -> None:
    network, x = make(arch, 2, "input", shape=shape_of(arch), classes=CLASSES), images(arch)
    plain = logits(network, x)
    channels_last = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    got = logits(channels_last, x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(got, plain, rtol=1e-4, atol=1e-4)


def test_the_seed_decides_the_weights_and_nothing_else_is_disturbed(make: Make) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    one = make("resnet8", 2, "stage2").state_dict()
    assert torch.equal(torch.rand(3), expected)
    same = make("resnet8", 2, "stage2").state_dict()
    other = make("resnet8", 2, "stage2", seed=1).state_dict()
    assert all(torch.equal(same[name], value) for name, value in one.items())
    assert not torch.equal(other["trunk.conv1.weight"], one["trunk.conv1.weight"])


def test_a_head_is_the_same_whatever_the_cut_and_the_number_of_heads(make: Make) -> None:
    few = make("resnet8", 2, "stage2").state_dict()
    many = make("resnet8", 3, "input").state_dict()
    for k in range(2):
        name = f"heads.{k}.layer3.0.conv1.weight"
        assert torch.equal(few[name], many[name])
    assert not torch.equal(many["heads.0.layer3.0.conv1.weight"], many["heads.1.layer3.0.conv1.weight"])


def test_unknown_names_get_the_nearest_one(make: Make) -> None:
    with pytest.raises(ConfigError, match="'resnet110'"):
        make("resnet-110", 1, "stage2")
    with pytest.raises(ConfigError, match="'stage2'"):
        make("resnet8", 1, "stage-2")
    with pytest.raises(ConfigError, match="convs, fc, input"):
        make("lenet", 1, "stage2", shape=(1, 28, 28))


def test_one_mean_per_channel_is_needed() -> None:
    with pytest.raises(ConfigError, match="as many means as channels"):
        build(ModelConfig(), shape=(3, 8, 8), classes=2, mean=[0.5], std=[0.5], seed=0)


def test_heads_that_normalise_for_themselves(make: Make) -> None:
    config = ModelConfig(arch="resnet8", heads=2, cut="input", normalize_heads=True)
    facts: dict[str, list[float]] = {"mean": [0.4, 0.4], "std": [0.25, 0.25]}
    model = build(config, shape=(2, 8, 8), classes=10, seed=3, **facts)
    shared = make("resnet8", 2, "input", shape=(2, 8, 8), seed=3)
    assert torch.equal(logits(model, images("resnet8")), logits(shared, images("resnet8")))
    assert {name for name, _ in model.named_buffers() if "normalize" in name} == {
        f"heads.{k}.normalize.{what}" for k in range(2) for what in ("mean", "std")
    }


@pytest.mark.parametrize(("cut", "normalize"), [("stage2", True), ("input", False)])
def test_only_separate_networks_normalise_for_themselves(cut: str, normalize: bool) -> None:
    with pytest.raises(ConfigError, match="Only separate networks can normalise"):
        ModelConfig(heads=2, cut=cut, normalize=normalize, normalize_heads=True)


class Plain(nn.Module):
    """Somebody else's network, which knows nothing of ours."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.body = nn.Conv2d(channels, 4, 3)
        self.last = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.body(x).relu().mean((2, 3)))
        return out


def test_an_architecture_from_outside_is_built_cut_and_counted(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ARCHITECTURES, "_components", dict(ARCHITECTURES._components))
    ARCHITECTURES.register(
        Architecture(name="plain", network=lambda shape, classes: Plain(shape[0], classes), cut="body")
    )
    network = make("plain", 3, "body", shape=(2, 8, 8), classes=CLASSES)
    assert network(torch.rand(2, 2, 8, 8)).shape == (3, 2, CLASSES)
    assert len({head.get_parameter("last.weight").sum().item() for head in network.heads}) == 3
    assert list_architectures("pl*") == ["plain"]
    assert cli.main(["info", "plain", "--heads", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["params"] == 3 * 4 * 9 + 4 + 5 * 50


def test_names_are_listed_by_pattern_without_torch() -> None:
    code = "import sys, smoothheads as sh; print(sh.list_architectures('resnet1*')); assert 'torch' not in "
    code += "sys.modules"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "['resnet14', 'resnet110', 'resnet18']"
