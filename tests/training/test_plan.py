from __future__ import annotations

from collections.abc import Callable

import torch

from smoothheads.data import Splits
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives import Gaussian, ObjectiveConfig
from smoothheads.training import TrainConfig, Trainer, make_plan


def test_planning_disturbs_nothing(tiny_network: Callable[..., MultiHead], small_digits: Splits) -> None:
    objective = ObjectiveConfig(method=Gaussian(draws=2))
    trainer = Trainer(
        tiny_network(heads=2), small_digits.train, config=TrainConfig(epochs=3, batch=32), objective=objective
    )
    before = trainer.state()
    plan = make_plan(trainer)
    after = trainer.state()
    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
    assert before.meta == after.meta
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    assert (plan.images_per_step, plan.steps_per_epoch, plan.steps) == (16, 8, 24)
    assert plan.model.params == sum(p.numel() for p in trainer.model.parameters())
    assert plan.seconds > 0
