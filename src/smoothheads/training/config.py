"""The settings of training, and the configuration of a whole run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from smoothheads.config import with_overrides
from smoothheads.config.check import Count, Natural, NotNegative, Positive, check_fields
from smoothheads.data import DataConfig, named
from smoothheads.errors import ConfigError
from smoothheads.models.config import ModelConfig
from smoothheads.objectives.config import ObjectiveConfig
from smoothheads.registry import as_component


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    sigma: NotNegative = 0.25
    """Standard deviation of the training noise, in pixel units of [0, 1]; 0 trains without noise."""
    epochs: Count = 150
    """Passes over the training images."""
    batch: Count = 256
    """Size of one optimiser step, in `batch_unit`s."""
    batch_unit: Literal["draws", "images"] = "draws"
    """draws: batch / draws images a step, as the reference codes do; images: batch images."""
    shards: Count = field(default=1, metadata={"unless_default": True})
    """Compute a step as this many micro-batches, each with BatchNorm of its own, added up in a fixed order.
    In one process that saves memory; under torchrun any number of ranks that divides it gives the same
    weights, bit for bit."""
    optimizer: Literal["sgd", "adam"] = field(default="sgd", metadata={"unless_default": True})
    """sgd uses momentum and nesterov; adam has its usual moments (0.9 and 0.999)."""
    lr: Positive = 0.1
    """Learning rate at the beginning."""
    momentum: NotNegative = 0.9
    """Momentum of sgd."""
    weight_decay: NotNegative = 1e-4
    """Weight decay (l2 penalty), of all parameters."""
    nesterov: bool = False
    """Nesterov's form of the momentum."""
    schedule: Literal["step", "cosine"] = "step"
    """How the learning rate falls: in steps, or as half a cosine."""
    step_epochs: Count = 50
    """Schedule step: epochs after which the learning rate is multiplied."""
    step_factor: float = 0.1
    """Schedule step: what it is multiplied by."""
    head_lr_scale: Positive = 1.0
    """Learning rate of the heads relative to the trunk; L undoes the mean over heads."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 autocast where the processor computes it natively."""
    channels_last: bool = True
    """Keep the channels of an image together in memory, which is faster on processors."""
    device: str = "cpu"
    """Device that trains; cuda is untested."""
    threads: Count = 1
    """Threads of torch."""
    seed: Natural = 0
    """Random seed of weights, noise and order of the images."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.nesterov and self.momentum == 0:
            raise ConfigError("Nesterov's method needs a momentum above 0: set train.momentum.")

    def learning_rate(self, step: int, steps_per_epoch: int) -> float:
        """Returns the rate of `step`, counted from 0: times `step_factor` every `step_epochs` epochs, or a
        half cosine. It is a function of the step, so that resuming needs no scheduler state."""
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * step / (self.epochs * steps_per_epoch)))
        epoch = step // steps_per_epoch
        return float(self.lr * self.step_factor ** (epoch // self.step_epochs))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """The settings of all stages of a training run; saved with every checkpoint and export."""

    data: DataConfig = field(default_factory=lambda: named("digits"))
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    init: str | None = None
    """Checkpoint whose weights training starts from, instead of a fresh draw."""

    def __post_init__(self) -> None:
        # What only the stages together can show to be impossible.
        object.__setattr__(self, "data", as_component(self.data, DataConfig))
        method = self.objective.method
        method.require(heads=self.model.heads)
        if self.train.batch_unit == "draws" and self.train.batch < method.trained_draws:
            raise ConfigError(
                f"A batch of {self.train.batch} draws has no room for the {method.trained_draws} draws of "
                "one image: raise train.batch, lower the method's draws, or set train.batch_unit to images."
            )

    @property
    def certified_sigma(self) -> float:
        """Returns the standard deviation of the noise under which this network is certified by default.

        It is the level that the denoiser in front of the network is set to, or else the training noise's, or
        0.25 if there is neither.
        """
        return self.model.denoiser_sigma or self.train.sigma or 0.25

    def with_overrides(self, changes: Mapping[str, Any]) -> RunConfig:
        """Returns a copy with other values, as in `with_overrides({"train.epochs": 3, "model.heads": 5})`."""
        return with_overrides(self, changes)
