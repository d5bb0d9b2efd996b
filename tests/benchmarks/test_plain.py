"""The plain loops must do the same work as we do, or the ratios mean nothing."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from benchmarks.plain import Ensemble, MeanOfHeads, SomeStep, sample_noise
from torch import nn

from benchmarks import contenders
from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.data import DataInfo
from smoothheads.models.cost import cost
from smoothheads.objectives import Gaussian, ObjectiveConfig, TeachingConfig
from smoothheads.objectives.method import Step
from smoothheads.objectives.objective import Objective
from smoothheads.types import Grid, Phase

SHAPE = (1, 8, 8)


def test_sample_noise_without_noise() -> None:
    bench = contenders.fresh("digits", 3, images=10)
    network = MeanOfHeads(bench.model)
    x_CHW = torch.from_numpy(bench.images.image(0)).float() / 255
    counts = sample_noise(network, x_CHW, 70, sigma=0.0, batch=32, classes=10)
    assert counts.tolist() == (70 * np.eye(10, dtype=int)[int(network(x_CHW[None]).argmax())]).tolist()


def test_sample_noise_agrees_with_the_engine() -> None:
    """Shares of 4,000 samples each; a difference of 0.06 has 6 standard errors, below 1e-8 a class."""
    bench = contenders.fresh("digits", 3, images=10)
    x_CHW = torch.from_numpy(bench.images.image(0)).float() / 255
    config = CertifyConfig(sigma=0.5, seed=0)
    counter = Certifier(bench.model, bench.info, config).counter
    torch.manual_seed(0)
    plain = sample_noise(MeanOfHeads(bench.model), x_CHW, 4000, sigma=0.5, batch=128, classes=10)
    ours = counter.votes(bench.images.image(0), 0, Phase.ESTIMATION, 0, 4000).for_aggregation()
    assert np.count_nonzero(plain) > 1
    assert np.abs(plain - ours).max() < 0.06 * 4000


def test_separate_networks_predict_as_the_heads() -> None:
    model = contenders.fresh("digits", 3, images=10).model
    apart = contenders.separate(model)
    x = torch.rand(2, *SHAPE)
    assert len(apart) == 3
    assert torch.allclose(Ensemble(apart)(x), MeanOfHeads(model)(x), atol=1e-6)


def test_separate_networks_cost() -> None:
    one, three = (contenders.fresh("digits", heads, images=10).model for heads in (1, 3))
    assert cost(Ensemble(contenders.separate(three)), SHAPE).macs == 3 * cost(one, SHAPE).macs


def test_some_step_loss_equals_the_objective() -> None:
    """Without noise the draws are equal and the loss is a number that both must give."""
    bench = contenders.fresh("digits", 3, images=16)
    images = torch.rand(16, *SHAPE)
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


def test_some_step_loss_falls() -> None:
    step = SomeStep(contenders.fresh("digits", 2, images=16).model, sigma=0.1, draws=2, lam=1.2)
    images, labels = torch.rand(16, *SHAPE), torch.arange(16) % 10
    losses = [step(images, labels) for _ in range(12)]
    assert losses[-1] < losses[0]


def test_art_constant_network() -> None:
    pytest.importorskip("art")
    pytest.importorskip("statsmodels")

    class Constant(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.eye(3)[torch.ones(len(x), dtype=torch.long)]

    info = DataInfo("constant", Grid(255), (1, 4, 4), ("a", "b", "c"), (0.0,), (1.0,))
    classifier = contenders.art_classifier(Constant(), info, sigma=0.5, n0=10)
    prediction, radius = contenders.art_certify(classifier, np.zeros((1, 4, 4)), 1000)
    assert prediction == 1
    assert 1.0 < radius < 1.3
