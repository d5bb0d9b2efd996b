"""On real digits every method lowers the smoothed loss, which all of them share (MACER counts only what is
right, so that its own objective may rise), measured under noise that training does not see."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from smoothheads import seeding
from smoothheads.data import Splits
from smoothheads.models.cut import multihead
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives import METHODS, CatRs, Method, ObjectiveConfig, SmoothAdv, Step, TeachingConfig
from smoothheads.training import TrainConfig
from smoothheads.training.loop import Trainer

CHEAP = {"draws": 2, "steps": 2, "epsilon": 0.5, "strength": 1.0, "warmup": 1, "mix_step": 0}


def cheap(kind: type[Method]) -> Method:
    method = kind()
    known = {name: value for name, value in CHEAP.items() if hasattr(method, name)}
    return replace(method, **known)  # type: ignore[arg-type]


CASES = [cheap(kind) for _, kind in METHODS.items() if kind.trains_classifier]
CASES += [SmoothAdv(draws=2, steps=2, warmup=1, attack="ddn", epsilon=0.5)]


def network() -> MultiHead:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    return multihead(net, cut=1, heads=3)


def value(model: MultiHead, method: Method, data: Splits, prepared: torch.Tensor) -> float:
    """The mean smoothed loss of the heads."""
    images = torch.from_numpy(data.train.images[:128].copy()).float() / 16  # type: ignore[attr-defined]
    step = Step(
        model=model,
        images=images,
        labels=torch.from_numpy(data.train.labels[:128].copy()),
        sigma=0.25,
        generator=seeding.generator(1, "judge"),
        epoch=12,
        prepared=prepared[:128],
    )
    return float(method(step).smoothed_LN.detach().mean())


@pytest.mark.parametrize("method", CASES, ids=[f"{m.name}{n}" for n, m in enumerate(CASES)])
def test_the_smoothed_loss_falls(method: Method, small_digits: Splits) -> None:
    labels = torch.from_numpy(small_digits.train.labels.copy())
    prepared = 0.9 * nn.functional.one_hot(labels, 10).float() + 0.01
    model = network()
    trainer = Trainer(
        model,
        small_digits.train,
        config=TrainConfig(sigma=0.25, epochs=20, batch=32, batch_unit="images", lr=0.2),
        objective=ObjectiveConfig(method=method, teaching=TeachingConfig(weights="uniform")),
        prepared=prepared if isinstance(method, CatRs) else None,
    )
    before = value(model, method, small_digits, prepared)
    list(trainer.run())
    assert value(model, method, small_digits, prepared) < 0.8 * before
