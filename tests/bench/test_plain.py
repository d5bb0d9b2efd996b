"""The plain loops must do the same work as we do, or the ratios mean nothing."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from smoothheads.bench import art, networks
from smoothheads.bench.networks import Size
from smoothheads.bench.plain import Ensemble, MeanOfHeads, SomeStep, sample_noise
from smoothheads.certify.engines import Network, Store, Torch
from smoothheads.models.cost import cost
from smoothheads.noise import make_noise
from smoothheads.objectives import Gaussian, ObjectiveConfig, TeachingConfig
from smoothheads.objectives.method import Step
from smoothheads.objectives.objective import Objective
from smoothheads.types import Phase

SMALL = Size("resnet8", (1, 8, 8))


def test_without_noise_all_copies_vote_for_the_networks_answer() -> None:
    bench = networks.make(SMALL, 3, images=10)
    network = MeanOfHeads(bench.model)
    x_CHW = torch.from_numpy(bench.image()).float() / 255
    counts = sample_noise(network, x_CHW, 70, sigma=0.0, batch=32, classes=10)
    assert counts.tolist() == (70 * np.eye(10, dtype=int)[int(network(x_CHW[None]).argmax())]).tolist()


def test_votes_are_those_of_the_engine_up_to_chance() -> None:
    """Shares of 4,000 samples each; a difference of 0.06 has 6 standard errors, below 1e-8 a class."""
    bench = networks.make(SMALL, 3, images=10)
    x_CHW = torch.from_numpy(bench.image()).float() / 255
    noise = make_noise("grid", 0.5, bench.info.grid, 0, 100)
    engine = Torch().build(Network(bench.model, bench.info, noise, "ensemble", Store()))
    torch.manual_seed(0)
    plain = sample_noise(MeanOfHeads(bench.model), x_CHW, 4000, sigma=0.5, batch=128, classes=10)
    ours = engine.votes(bench.image(), 0, Phase.ESTIMATION, 0, 4000).for_rule()
    assert np.count_nonzero(plain) > 1
    assert np.abs(plain - ours).max() < 0.06 * 4000


def test_separate_networks_answer_as_the_heads_do() -> None:
    model = networks.make(SMALL, 3, images=10).model
    apart = networks.separate(model)
    x = torch.rand(2, *SMALL.shape)
    assert len(apart) == 3
    assert torch.allclose(Ensemble(apart)(x), MeanOfHeads(model)(x), atol=1e-6)


def test_separate_networks_cost_as_much_as_whole_ones() -> None:
    one, three = (networks.make(SMALL, heads, images=10).model for heads in (1, 3))
    assert cost(Ensemble(networks.separate(three)), SMALL.shape).macs == 3 * cost(one, SMALL.shape).macs


def test_plain_step_minimises_what_training_minimises() -> None:
    """Without noise the draws are equal and the loss is a number that both must give."""
    bench = networks.make(SMALL, 3, images=16)
    images = torch.rand(16, *SMALL.shape)
    labels = torch.arange(16) % 10
    model = copy.deepcopy(bench.model).train()
    teaching = TeachingConfig(pace="fixed", lambda_last=1.2)
    objective = Objective(ObjectiveConfig(method=Gaussian(draws=2), teaching=teaching), classes=10, epochs=1)
    generator = torch.Generator().manual_seed(0)
    step = Step(model, images, labels, sigma=0.0, generator=generator, epoch=1)
    cosines = objective.diversity(model)
    assert cosines is not None
    expected = (objective(step).loss + cosines).item()
    plain = SomeStep(copy.deepcopy(bench.model), sigma=0.0, draws=2, lam=1.2)
    assert plain(images, labels) == pytest.approx(expected, rel=1e-5)


def test_plain_step_trains() -> None:
    step = SomeStep(networks.make(SMALL, 2, images=16).model, sigma=0.1, draws=2, lam=1.2)
    images, labels = torch.rand(16, *SMALL.shape), torch.arange(16) % 10
    losses = [step(images, labels) for _ in range(12)]
    assert losses[-1] < losses[0]


def test_art_certifies_a_constant_network_at_the_ceiling() -> None:
    pytest.importorskip("art")
    pytest.importorskip("statsmodels")

    class Constant(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.eye(3)[torch.ones(len(x), dtype=torch.long)]

    smoothed = art.smoothing(Constant(), (1, 4, 4), classes=3, sigma=0.5, n0=10, alpha=0.001)
    prediction, radius = art.certify(smoothed, np.zeros((1, 4, 4)), 1000, 128)
    assert prediction == 1
    assert 1.0 < radius < 1.3
