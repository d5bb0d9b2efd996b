"""Training: one loop for every method and every number of heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from smoothheads.config import ObjectiveConfig, TrainConfig
from smoothheads.data import Dataset
from smoothheads.device import threads
from smoothheads.models.multihead import MultiHead
from smoothheads.training.loop import EpochDone, StepDone, Trainer, TrainState
from smoothheads.training.plan import Plan, make_plan

__all__ = ["EpochDone", "Plan", "StepDone", "TrainState", "Trainer", "make_plan", "train"]


def train(
    model: MultiHead,
    dataset: Dataset,
    *,
    objective: ObjectiveConfig | None = None,
    validation: Dataset | None = None,
    augment: bool = False,
    on_event: Callable[[StepDone | EpochDone], None] | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Trains `model` in place and returns every epoch's metrics; `settings` are fields of TrainConfig."""
    config = TrainConfig(**settings)
    trainer = Trainer(
        model,
        dataset,
        config=config,
        objective=objective or ObjectiveConfig(),
        validation=validation,
        augment=augment,
    )
    history = []
    with threads(config.threads):
        for event in trainer.run():
            if isinstance(event, EpochDone):
                history.append(event.metrics)
            if on_event:
                on_event(event)
    return history
