from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from smoothheads.errors import ConfigError
from smoothheads.models.multihead import MultiHead, Normalize, as_multihead, temporary_mode


def linear(weight: float) -> nn.Linear:
    layer = nn.Linear(1, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[weight], [-weight]]))
        layer.bias.zero_()
    return layer


def test_logits_are_stacked_head_by_head() -> None:
    network = MultiHead(nn.Flatten(), [linear(1.0), linear(3.0)], Normalize([0.5], [0.25]))
    logits_LNC = network(torch.ones(1, 1, 1, 1))
    assert logits_LNC.tolist() == [[[2.0, -2.0]], [[6.0, -6.0]]]


def test_without_normalisation_pixels_go_straight_in() -> None:
    assert MultiHead(nn.Flatten(), [linear(1.0)])(torch.ones(1, 1, 1, 1)).tolist() == [[[1.0, -1.0]]]


def test_parameters_and_weights_per_head() -> None:
    heads = [
        nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2)) for _ in "ab"
    ]
    network = MultiHead(nn.Identity(), heads)
    assert [[p.ndim for p in parameters] for parameters in network.head_parameters()] == [
        [4, 1, 1, 1, 2, 1]
    ] * 2
    assert [[p.ndim for p in parameters] for parameters in network.head_weights()] == [[4, 2]] * 2
    assert network.head_parameters()[1][0] is heads[1].get_parameter("0.weight")


def test_heads_that_share_a_parameter_are_refused() -> None:
    head = nn.Linear(1, 2)
    with pytest.raises(ConfigError, match="'weight' is a shared parameter"):
        MultiHead(nn.Identity(), [head, head])
    with pytest.raises(ConfigError, match="shared parameter"):
        MultiHead(head, [nn.Linear(2, 2), nn.Sequential(head)])


def test_no_heads_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one head"):
        MultiHead(nn.Identity(), [])


def test_learned_weights_travel_with_the_network() -> None:
    network = MultiHead(nn.Flatten(), [linear(1.0), linear(3.0)])
    before = network(torch.ones(1, 1, 1, 1))
    assert "ensemble_weights" not in network.state_dict()
    network.weigh(torch.tensor([0.5, -2.0]))
    assert network.state_dict()["ensemble_weights"].tolist() == [0.5, -2.0]
    assert network.state_dict()["ensemble_weights"].dtype == torch.float64
    assert torch.equal(network(torch.ones(1, 1, 1, 1)), before)
    network.weigh(None)
    assert "ensemble_weights" not in network.state_dict()


@pytest.mark.parametrize("weights", [[1.0], [1.0, 2.0, 3.0], [0.0, 0.0], [1.0, float("nan")]])
def test_unusable_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="do not fit 2 heads"):
        MultiHead(nn.Flatten(), [linear(1.0), linear(3.0)]).weigh(torch.tensor(weights))


def test_one_head_takes_no_weights() -> None:
    with pytest.raises(ConfigError, match="two or more heads"):
        MultiHead(nn.Flatten(), [linear(1.0)]).weigh(torch.ones(1))


def test_each_channel_has_its_own_mean_and_std() -> None:
    x = torch.tensor([1.0, 1.0]).reshape(1, 2, 1, 1)
    out = Normalize([0.5, 0.25], [0.25, 0.5])(x)
    assert out.flatten().tolist() == [2.0, 1.5]


def test_pixels_beyond_the_range_are_not_clipped() -> None:
    out = Normalize([0.0], [0.5])(torch.tensor([-1.0, 3.0]).reshape(1, 1, 1, 2))
    assert out.flatten().tolist() == [-2.0, 6.0]


def test_it_travels_with_the_weights() -> None:
    other = Normalize([0.0], [1.0])
    other.load_state_dict(Normalize([0.5], [0.25]).state_dict())
    assert other(torch.ones(1, 1, 1, 1)).item() == 2.0
    assert not list(other.parameters())


@pytest.mark.parametrize(("mean", "std"), [([0.5], [0.0]), ([0.5], [-1.0]), ([0.5, 0.5], [1.0])])
def test_impossible_statistics_are_refused(mean: list[float], std: list[float]) -> None:
    with pytest.raises(ConfigError):
        Normalize(mean, std)


@pytest.mark.parametrize("training", [True, False])
def test_every_module_gets_its_own_mode_back(training: bool) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()).train()
    model[0].eval()  # a frozen layer
    with temporary_mode(model, training=training):
        assert [module.training for module in model.modules()] == [training] * 3
    assert [module.training for module in model.modules()] == [True, False, True]


def test_also_after_an_error() -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(TypeError), temporary_mode(model, training=False):
        model()
    assert model.training


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return nn.Linear(2, 2)


def sparse() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.register_buffer("mask", torch.eye(2).to_sparse_csr())
    return layer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.LazyLinear(2), "'weight' of the network has no shape yet: run the network once"),
        (on_meta, "'weight' of the network is on the meta device"),
        (sparse, "'mask' of the network is sparse"),
        (lambda: nn.Linear, r"Linear is a class: create the network first, as in Linear\(\)"),
        (lambda: "network.pth", "not a str"),
        (lambda: nn.Linear(2, 2).double(), "parameters are float64, but images are float32"),
        (lambda: nn.Linear(2, 2).half(), "parameters are float16, but images are float32"),
    ],
)
def test_networks_that_cannot_compute_are_one_sentence(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        as_multihead(make())


def test_extra_state_and_deep_plain_containers_are_accepted() -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> object:
            return {"calls": 3}

    network, inside = Extra(2, 2), []  # type: ignore[var-annotated]
    for _ in range(5000):
        inside = [inside]
    network.notes = inside  # type: ignore[assignment]
    assert as_multihead(network).heads[0] is network
