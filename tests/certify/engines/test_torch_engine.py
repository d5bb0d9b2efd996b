from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from smoothheads.certify.config import CertifyConfig
from smoothheads.data import Splits, SubsetConfig, select
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models.aggregate import aggregate_votes, aggregations
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import NOISES
from smoothheads.smoothed import Smoothed
from smoothheads.types import Grid, Phase

from .builders import torch_counter

Network = Callable[..., MultiHead]
CPU = torch.device("cpu")


@pytest.fixture
def model(tiny_network: Network) -> MultiHead:
    network = tiny_network(heads=3)
    network.weigh(torch.tensor([1.0, -0.5, 0.25]))
    return network.eval()


def test_the_votes_are_those_of_every_aggregation(model: MultiHead, small_digits: Splits) -> None:
    noise = NOISES.get("grid")().keyed(0.5, Grid(16), 0, 50)
    engine = torch_counter(model, noise)
    image = small_digits.test.image(3)
    votes = engine.votes(image, 3, Phase.ESTIMATION, 0, 50)
    copies = torch.from_numpy(noise.noisy(image, 3, Phase.ESTIMATION, 0))
    with torch.no_grad():
        logits_LNC = model(copies.contiguous(memory_format=torch.channels_last))
    assert votes.aggregations == aggregations(3, weighted=True)
    for aggregation, classes_N in zip(
        votes.aggregations, aggregate_votes(logits_LNC, model.ensemble_weights), strict=True
    ):
        np.testing.assert_array_equal(
            votes.for_aggregation(aggregation), np.bincount(classes_N, minlength=10)
        )


@pytest.mark.parametrize("aggregation", ["softmax", "vote", "margin", "weighted"])
def test_every_aggregation_can_be_certified(model: MultiHead, small_digits: Splits, aggregation: str) -> None:
    data = select(small_digits.test, SubsetConfig(first=2))
    for found in Smoothed(
        model, data.info, seed=0, sigma=0.5, n0=50, n=200, block=50, aggregation=aggregation
    ).certify(data):
        chosen = int(found.selection.for_aggregation(aggregation).argmax())
        assert found.certificate.k == found.votes.for_aggregation(aggregation)[chosen]


def test_an_aggregation_that_the_network_does_not_have_names_those_it_has(
    tiny_network: Network, small_digits: Splits
) -> None:
    for heads, aggregation in ((3, "weighted"), (3, "consensus-7"), (3, "consensus-3"), (1, "vote")):
        with pytest.raises(ConfigError) as caught:
            Smoothed(
                tiny_network(heads=heads), small_digits.test.info, seed=0, sigma=0.5, aggregation=aggregation
            )
        assert f"no aggregation {aggregation!r}: choose from ensemble" in str(caught.value)


def test_the_network_that_is_sampled_is_named_as_folded(model: MultiHead, small_digits: Splits) -> None:
    noise = NOISES.get("grid")().keyed(0.5, Grid(16), 0, 50)
    engine = torch_counter(model, noise).engine
    described = engine.describe()
    assert described["folded"]
    before = engine.fingerprint()
    next(model.parameters()).data += 1  # the engine has a copy of its own
    assert engine.fingerprint() == before
    plain = MultiHead(torch.nn.Flatten(), [torch.nn.Linear(64, 10)])
    assert not torch_counter(plain, noise).engine.describe()["folded"]


def test_float16_that_overflows_is_no_vote(small_digits: Splits, monkeypatch: pytest.MonkeyPatch) -> None:
    linear = torch.nn.Linear(64, 10)
    torch.nn.init.constant_(linear.weight, 60_000.0)  # two of them are above the largest float16
    network = MultiHead(torch.nn.Flatten(), [linear])
    noise = NOISES.get("grid")().keyed(0.5, Grid(16), 0, 20)
    settings: dict[str, Any] = {}
    key = small_digits.test.image(0), 0, Phase.ESTIMATION, 0, 20
    torch_counter(network, noise, **settings).votes(*key)
    monkeypatch.setattr(CertifyConfig, "__post_init__", lambda _: None)  # it refuses float16 on a processor
    with pytest.raises(SoundnessError, match="samples of image 0 have NaN or infinite logits"):
        torch_counter(network, noise, precision="float16", **settings).votes(*key)
