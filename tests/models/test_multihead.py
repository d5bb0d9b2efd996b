from __future__ import annotations

import pytest
import torch
from torch import nn

from smoothheads.errors import ConfigError
from smoothheads.models.multihead import MultiHead
from smoothheads.models.normalize import Normalize


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
    with pytest.raises(ConfigError, match="shared parameter 'weight'"):
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
    with pytest.raises(ConfigError, match="a finite weight for each of 2 heads, not all 0"):
        MultiHead(nn.Flatten(), [linear(1.0), linear(3.0)]).weigh(torch.tensor(weights))


def test_one_head_takes_no_weights() -> None:
    with pytest.raises(ConfigError, match="one head needs none"):
        MultiHead(nn.Flatten(), [linear(1.0)]).weigh(torch.ones(1))
