"""The threshold lambda between easy and hard samples: how it moves during training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from smoothheads.objectives.adaptive import Adaptive
from smoothheads.objectives.config import TeachingConfig


class Pace(Protocol):
    """Gives each head its lambda; what it remembers is plain tensors, saved for a resume."""

    @property
    def whole_batch(self) -> bool:
        """Whether lambda depends on the losses, and so wants those of all micro-batches of a step at once."""
        ...

    def threshold(self, epoch: int, smoothed_LN: Tensor) -> Tensor:
        """Lambda [L] for this batch of detached smoothed losses; epochs count from 1."""
        ...

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The same lambda for all heads, a function of the epoch alone."""

    config: TeachingConfig
    classes: int
    epochs: int
    whole_batch: ClassVar[bool] = False

    def threshold(self, epoch: int, smoothed_LN: Tensor) -> Tensor:
        lam = scheduled_lambda(self.config, epoch=epoch, epochs=self.epochs, classes=self.classes)
        return smoothed_LN.new_full((len(smoothed_LN),), lam)

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        del state


def build_pace(config: TeachingConfig, *, classes: int, epochs: int) -> Pace:
    kind = Adaptive if config.pace in ("quantile", "budget") else Scheduled
    return kind(config, classes, epochs)


def scheduled_lambda(config: TeachingConfig, *, epoch: int, epochs: int, classes: int) -> float:
    """Lambda of `epoch` (counted from 1), falling from ln(classes) to its last value: the bar for easy rises.

    The log10 shape is -log10(a t + b), written as an interpolation so that its ends are exact.
    """
    last = radius_lambda(config.radius) if config.pace == "radius" else config.lambda_last
    if config.pace == "fixed" or epochs == 1 or epoch == epochs:
        return last
    first = math.log(classes) if config.lambda_first is None else config.lambda_first
    if epoch == 1:
        return first
    u = (epoch - 1) / (epochs - 1)
    if config.pace == "log10":
        return -math.log10((1 - u) * 10**-first + u * 10**-last)
    return (1 - u) * first + u * last


def radius_lambda(radius: float) -> float:
    """-ln of the probability that certifies `radius`, in units of sigma.

    By Jensen's inequality a smoothed loss below it means a mean probability of the label above that one.
    """
    return -math.log(0.5 * math.erfc(-radius / math.sqrt(2)))
