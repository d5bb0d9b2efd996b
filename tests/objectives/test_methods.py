from __future__ import annotations

import copy
import typing
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from smoothheads import config as cfg
from smoothheads.errors import ConfigError
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.base import Step
from smoothheads.objectives.methods import build_method
from smoothheads.objectives.objective import Objective

Models = Callable[[int], MultiHead]
Steps = Callable[..., Step]

METHODS: list[cfg.Method] = [
    cfg.Gaussian(draws=2),
    cfg.Stability(),
    cfg.Consistency(strength=5.0),
    cfg.Consistency(strength=5.0, form="mse"),
    cfg.SmoothMix(steps=2, step_size=0.2),
    cfg.SmoothAdv(draws=2, steps=2, epsilon=0.3),
    cfg.SmoothAdv(draws=2, steps=3, epsilon=0.3, attack="ddn"),
    cfg.SmoothAdv(draws=4, steps=2, epsilon=0.3, attack="gradient-free"),
    cfg.Macer(draws=4, temperature=4.0, strength=1.0),
    cfg.CatRs(draws=2, steps=2, epsilon=0.3),
    cfg.AcrTargeted(draws=2, start=0, steps=2),
    cfg.Drt(),
]


def soft_labels(step: Step) -> Tensor:
    return 0.8 * nn.functional.one_hot(step.labels, 3).float() + 0.2 / 3


def objective(method: cfg.Method, step: Step) -> Objective:
    return Objective(cfg.ObjectiveConfig(method=method), classes=3, epochs=30, soft_labels=soft_labels(step))


def test_every_method_is_here() -> None:
    assert {type(m) for m in METHODS} == set(typing.get_args(cfg.Method))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_three_heads_lower_the_objective(method: cfg.Method, tiny_heads: Models, make_step: Steps) -> None:
    model = tiny_heads(3)
    positions = torch.arange(12)
    train = objective(method, make_step(model))

    def value() -> float:
        judge = copy.deepcopy(model).train()
        return train(make_step(judge, positions=positions, epoch=10)).loss.item()

    before = value()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for seed in range(15):
        step = make_step(model, positions=positions, epoch=10, generator=torch.Generator().manual_seed(seed))
        sgd.zero_grad()
        train(step).loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()
    assert value() < before - 0.02


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_losses_are_per_head_and_image_and_repeatable(
    method: cfg.Method, tiny_heads: Models, make_step: Steps
) -> None:
    runs = []
    for _ in range(2):
        step = make_step(tiny_heads(3), positions=torch.arange(12), epoch=10)
        losses = build_method(method, classes=3, soft_labels=soft_labels(step))(step)
        assert losses.per_sample_LN.shape == losses.smoothed_LN.shape == (3, 12)
        assert losses.per_sample_LN.requires_grad
        runs.append(losses)
    assert torch.equal(runs[0].per_sample_LN, runs[1].per_sample_LN)
    assert torch.equal(runs[0].smoothed_LN, runs[1].smoothed_LN)


@pytest.mark.parametrize("method", METHODS[:-1], ids=str)
def test_one_head_is_the_plain_method_bit_for_bit(
    method: cfg.Method, tiny_heads: Models, make_step: Steps
) -> None:
    gradients = []
    for teaching in (cfg.TeachingConfig(), cfg.TeachingConfig(weights="uniform")):
        model = tiny_heads(1)
        step = make_step(model, positions=torch.arange(12), epoch=10)
        settings = cfg.ObjectiveConfig(method=method, teaching=teaching)
        train = Objective(settings, classes=3, epochs=30, soft_labels=soft_labels(step))
        train(step).loss.backward()  # type: ignore[no-untyped-call]
        gradients.append([p.grad for p in model.parameters()])
        plain = build_method(method, classes=3, soft_labels=soft_labels(step))
        again = tiny_heads(1)
        plain(make_step(again, positions=torch.arange(12), epoch=10)).per_sample_LN.mean().backward()  # type: ignore[no-untyped-call]
        gradients.append([p.grad for p in again.parameters()])
    for other in gradients[1:]:
        assert all(
            torch.equal(a, b)
            for a, b in zip(gradients[0], other, strict=True)
            if a is not None and b is not None
        )
        assert all(g is not None for g in other)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_under_bfloat16_losses_are_float32_and_gradients_finite(
    method: cfg.Method, tiny_heads: Models, make_step: Steps
) -> None:
    model = tiny_heads(3)
    step = make_step(model, positions=torch.arange(12), epoch=10)
    with torch.autocast("cpu", torch.bfloat16):
        terms = objective(method, step)(step)
    assert terms.loss.dtype == torch.float32
    terms.loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("method", "classes", "labels", "message"),
    [
        (cfg.Macer(), 1, None, "expected two classes or more for macer, got 1; it compares"),
        (cfg.Drt(), 1, None, "expected two classes or more for drt, got 1"),
        (cfg.CatRs(), 3, None, "expected soft labels for cat-rs, got none; set teacher"),
        (cfg.CatRs(), 3, torch.ones(5, 4), r"expected soft labels \[training images, 3\], got \[5, 4\]"),
    ],
)
def test_wrong_combinations(method: cfg.Method, classes: int, labels: Tensor | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Objective(cfg.ObjectiveConfig(method=method), classes=classes, epochs=3, soft_labels=labels)
