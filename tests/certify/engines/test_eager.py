from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from smoothheads.certify.engines import TorchEngine
from smoothheads.certify.smoothed import Smoothed
from smoothheads.config import SubsetConfig
from smoothheads.data import Splits, select
from smoothheads.errors import ConfigError
from smoothheads.models import MultiHead, decide, rules
from smoothheads.noise import make_noise
from smoothheads.types import Grid, Phase

Network = Callable[..., MultiHead]
CPU = torch.device("cpu")


@pytest.fixture
def model(tiny_network: Network) -> MultiHead:
    network = tiny_network(heads=3)
    network.weigh(torch.tensor([1.0, -0.5, 0.25]))
    return network


def test_the_votes_are_those_of_every_rule(model: MultiHead, small_digits: Splits) -> None:
    noise = make_noise("grid", 0.5, Grid(16), 0, 50)
    engine = TorchEngine(model, noise, classes=10, shape=(1, 8, 8), device=CPU)
    image = small_digits.test.image(3)
    votes = engine.votes(image, 3, Phase.ESTIMATION, 0, 50)
    copies = torch.from_numpy(noise.noisy(image, 3, Phase.ESTIMATION, 0))
    with torch.no_grad():
        logits_LNC = model(copies.contiguous(memory_format=torch.channels_last))
    assert votes.rules == rules(3, weighted=True)
    for rule, classes_N in zip(votes.rules, decide(logits_LNC, model.ensemble_weights), strict=True):
        np.testing.assert_array_equal(votes.of(rule), np.bincount(classes_N.numpy(), minlength=10))


@pytest.mark.parametrize("rule", ["softmax", "vote", "margin", "weighted"])
def test_every_aggregation_can_be_certified(model: MultiHead, small_digits: Splits, rule: str) -> None:
    data = select(small_digits.test, SubsetConfig(first=2))
    for found in Smoothed(model, data.info, sigma=0.5, n0=50, n=200, block=50, rule=rule).certify(data):
        chosen = int(found.selection.of(rule).argmax())
        assert found.certificate.k == found.votes.of(rule)[chosen]


def test_a_rule_that_the_network_does_not_have_names_those_it_has(
    tiny_network: Network, small_digits: Splits
) -> None:
    for heads, rule in ((3, "weighted"), (3, "consensus-7"), (3, "consensus-3"), (1, "vote")):
        with pytest.raises(ConfigError) as caught:
            Smoothed(tiny_network(heads=heads), small_digits.test.info, sigma=0.5, rule=rule)
        expected = f"a known rule of this network, got {rule!r}; choose from: {', '.join(rules(heads))}"
        assert str(caught.value) == f"expected {expected}"
