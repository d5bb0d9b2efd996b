from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from smoothheads.errors import ConfigError
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives import METHODS as REGISTRY
from smoothheads.objectives import (
    AcrTargeted,
    CatRs,
    Consistency,
    Drt,
    Gaussian,
    Macer,
    Method,
    ObjectiveConfig,
    SmoothAdv,
    SmoothMix,
    Stability,
    TeachingConfig,
)
from smoothheads.objectives.method import Step
from smoothheads.objectives.objective import Objective

Models = Callable[[int], MultiHead]
Steps = Callable[..., Step]

METHODS: list[Method] = [
    Gaussian(draws=2),
    Stability(),
    Consistency(strength=5.0),
    Consistency(strength=5.0, form="mse"),
    SmoothMix(steps=2, step_size=0.2),
    SmoothAdv(draws=2, steps=2, epsilon=0.3),
    SmoothAdv(draws=2, steps=3, epsilon=0.3, attack="ddn"),
    Macer(draws=4, temperature=4.0, strength=1.0),
    CatRs(draws=2, steps=2, epsilon=0.3),
    AcrTargeted(draws=2, start=0, steps=2),
    Drt(),
]


SOFT = 0.8 * nn.functional.one_hot(torch.arange(12) % 3, 3).float() + 0.2 / 3


def objective(method: Method) -> Objective:
    return Objective(ObjectiveConfig(method=method), classes=3, epochs=30)


def test_every_method_is_here() -> None:
    assert {type(m) for m in METHODS} == {kind for _, kind in REGISTRY.items() if kind.trains_classifier}


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_three_heads_lower_the_objective(method: Method, tiny_heads: Models, make_step: Steps) -> None:
    model = tiny_heads(3)
    train = objective(method)

    def value() -> float:
        judge = copy.deepcopy(model).train()
        return train(make_step(judge, prepared=SOFT, epoch=10)).loss.item()

    before = value()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for seed in range(15):
        step = make_step(model, prepared=SOFT, epoch=10, generator=torch.Generator().manual_seed(seed))
        sgd.zero_grad()
        train(step).loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()
    assert value() < before - 0.02


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_losses_are_per_head_and_image_and_repeatable(
    method: Method, tiny_heads: Models, make_step: Steps
) -> None:
    runs = []
    for _ in range(2):
        step = make_step(tiny_heads(3), prepared=SOFT, epoch=10)
        losses = method(step)
        assert losses.per_sample_LN.shape == losses.smoothed_LN.shape == (3, 12)
        assert losses.per_sample_LN.requires_grad
        runs.append(losses)
    assert torch.equal(runs[0].per_sample_LN, runs[1].per_sample_LN)
    assert torch.equal(runs[0].smoothed_LN, runs[1].smoothed_LN)


@pytest.mark.parametrize("method", METHODS[:-1], ids=str)
def test_one_head_is_the_plain_method_bit_for_bit(
    method: Method, tiny_heads: Models, make_step: Steps
) -> None:
    gradients = []
    for teaching in (TeachingConfig(), TeachingConfig(weights="uniform")):
        model = tiny_heads(1)
        step = make_step(model, prepared=SOFT, epoch=10)
        settings = ObjectiveConfig(method=method, teaching=teaching)
        train = Objective(settings, classes=3, epochs=30)
        train(step).loss.backward()  # type: ignore[no-untyped-call]
        gradients.append([p.grad for p in model.parameters()])
        again = tiny_heads(1)
        method(make_step(again, prepared=SOFT, epoch=10)).per_sample_LN.mean().backward()  # type: ignore[no-untyped-call]
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
    method: Method, tiny_heads: Models, make_step: Steps
) -> None:
    model = tiny_heads(3)
    step = make_step(model, prepared=SOFT, epoch=10)
    with torch.autocast("cpu", torch.bfloat16):
        terms = objective(method)(step)
    assert terms.loss.dtype == torch.float32
    terms.loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("method", [Macer(), Drt()], ids=str)
def test_two_classes_are_needed(method: Method) -> None:
    with pytest.raises(ConfigError, match=f"{method.name} compares the likeliest classes"):
        Objective(ObjectiveConfig(method=method), classes=1, epochs=3)
