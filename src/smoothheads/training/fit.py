"""Training in one call, for Python users."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from smoothheads import ranks
from smoothheads.config import from_dict
from smoothheads.data import DataInfo, InMemory, as_dataset
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
    """A trained network, with everything that a checkpoint of it has to say."""

    model: MultiHead
    config: RunConfig
    info: DataInfo
    history: list[dict[str, Any]]
    """Every epoch's metrics."""


def line_per_epoch(event: Event) -> None:
    """Prints a line for every epoch on standard error; the default of `train`."""
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
    """Trains `model` in place under Gaussian noise.

    Args:
        model: gives logits [N, C], or is a MultiHead.
        dataset: training images; anything that `sh.dataset` takes.
        sigma: standard deviation of the noise, for pixels in [0, 1].
        method: a base method or its name.
        objective: method, teaching and cosine constraint, instead of a method alone.
        validation: held-out images; anything that `sh.dataset` takes.
        augment: crop and flip the training images.
        on_event: receives every step and epoch; None is silent.
        settings: fields of TrainConfig (epochs, batch, lr, ...).
    """
    if method is not None and objective is not None:
        raise ConfigError("Give either a method or an objective: put the method into the objective.")
    # Put model, data and settings into the form that the trainer takes.
    network, images = as_multihead(model), as_dataset(dataset)
    config = RunConfig(
        data=InMemory(),
        model=network.config or ModelConfig(arch=OWN, heads=len(network.heads), cut=OWN),
        objective=objective or (ObjectiveConfig(method=method) if method else ObjectiveConfig()),  # type: ignore[arg-type]
        train=resolve(from_dict(TrainConfig, {"sigma": sigma, **settings}, "train")),
    )

    def no_checkpoint(folder: str) -> nn.Module:
        raise ConfigError(
            f"The method needs the checkpoint {folder}: use `smoothheads train`, which can open one."
        )

    with threads(config.train.threads):
        # The method may look at all images before training begins.
        preparation = Preparation(
            dataset=images,
            device=parse(ranks.own_device(config.train.device)),
            open_model=no_checkpoint,
            on_progress=lambda done, total: None,  # noqa: ARG005
        )
        trainer = Trainer(
            network,
            images,
            config=config.train,
            objective=config.objective,
            validation=None if validation is None else as_dataset(validation),
            augment=augment,
            prepared=config.objective.method.prepare(preparation),
        )
        # Train, and keep the metrics of every epoch.
        history = []
        for event in trainer.run():
            if isinstance(event, EpochDone):
                history.append(event.metrics)
            if on_event:
                on_event(event)
    return Trained(network, config, images.info, history)
