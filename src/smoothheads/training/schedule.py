"""The learning rate as a pure function of the step, so that resuming needs no scheduler state."""

from __future__ import annotations

import math

from smoothheads.training.config import TrainConfig


def learning_rate(config: TrainConfig, step: int, steps_per_epoch: int) -> float:
    """For `step` counted from 0: times `step_factor` every `step_epochs` epochs, or a half cosine."""
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * step / (config.epochs * steps_per_epoch)))
    epoch = step // steps_per_epoch
    return float(config.lr * config.step_factor ** (epoch // config.step_epochs))
