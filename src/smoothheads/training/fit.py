"""Training in one call, for Python users."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from smoothheads import ranks
from smoothheads.config import from_dict
from smoothheads.data import DataInfo, Dataset, InMemory, as_dataset
from smoothheads.device import parse, threads
from smoothheads.errors import ConfigError
from smoothheads.models.config import OWN, ModelConfig
from smoothheads.models.multihead import MultiHead, as_multihead
from smoothheads.objectives.config import ObjectiveConfig
from smoothheads.objectives.method import Method, Preparation
from smoothheads.training.config import RunConfig, TrainConfig
from smoothheads.training.loop import EpochDone, StepDone, Trainer, resolve

Event = StepDone | EpochDone


@dataclass(frozen=True, slots=True)
class Trained:
    """What training made, with everything that a checkpoint of it has to say."""

    model: MultiHead
    config: RunConfig
    info: DataInfo
    history: list[dict[str, Any]]
    """Every epoch's metrics."""


def line_per_epoch(event: Event) -> None:
    """What `train` shows unless it is told otherwise, on standard error."""
    if isinstance(event, EpochDone) and ranks.first():
        accuracy = event.metrics.get("validation", {}).get("accuracy")
        seen = "" if accuracy is None else f", accuracy {accuracy:.1%}"
        line = f"epoch {event.epoch}/{event.epochs}: loss {event.metrics['loss']:.3f}{seen}"
        print(line, file=sys.stderr, flush=True)


def train(
    model: nn.Module,
    dataset: Any,
    *,
    sigma: float,
    method: str | Method | None = None,
    objective: ObjectiveConfig | None = None,
    validation: Any = None,
    augment: bool = False,
    on_event: Callable[[Event], None] | None = line_per_epoch,
    **settings: Any,
) -> Trained:
    """Trains `model` in place, under Gaussian noise of standard deviation `sigma` for pixels in [0, 1].

    `model` gives logits [N, C], or is a MultiHead. `dataset` and `validation` are what `sh.dataset` takes;
    `method` is a base method or its name, `settings` are fields of TrainConfig (epochs, batch, lr, ...).
    `on_event` sees every step and epoch; None is silent.
    """
    network, images = as_multihead(model), as_dataset(dataset)
    config = RunConfig(
        data=InMemory(),
        model=network.config or ModelConfig(arch=OWN, heads=len(network.heads), cut=OWN),
        objective=_objective(objective, method),
        train=resolve(from_dict(TrainConfig, {"sigma": sigma, **settings}, "train")),
    )
    with threads(config.train.threads):
        trainer = Trainer(
            network,
            images,
            config=config.train,
            objective=config.objective,
            validation=None if validation is None else as_dataset(validation),
            augment=augment,
            prepared=config.objective.method.prepare(_preparation(images, config)),
        )
        history = []
        for event in trainer.run():
            if isinstance(event, EpochDone):
                history.append(event.metrics)
            if on_event:
                on_event(event)
    return Trained(network, config, images.info, history)


def _objective(objective: ObjectiveConfig | None, method: str | Method | None) -> ObjectiveConfig:
    if method is None:
        return objective or ObjectiveConfig()
    if objective is not None:
        raise ConfigError("a method or an objective", "both", "put the method into the objective")
    return ObjectiveConfig(method=method)  # type: ignore[arg-type]


def _preparation(images: Dataset, config: RunConfig) -> Preparation:
    return Preparation(
        dataset=images,
        device=parse(ranks.own_device(config.train.device)),
        open_model=_no_checkpoint,
        on_progress=lambda done, total: None,  # noqa: ARG005
    )


def _no_checkpoint(folder: str) -> nn.Module:
    raise ConfigError(
        "a method that needs no other network", f"the checkpoint {folder}", "use `smoothheads train`"
    )
