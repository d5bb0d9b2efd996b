"""The threshold lambda that separates easy from hard samples, and how it moves during training.

Every pace gives each head one threshold per class, lambda [L, C]. The schedules of the paper depend on the
epoch alone and give all heads and classes the same value. The others read lambda off the smoothed losses.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from smoothheads.objectives.config import TeachingConfig

MEMORY = 0.9  # of a quantile's exponential moving average, per step
FLOOR = math.log(1 / 0.9)


class Pace:
    """Schedules (log10, linear, fixed): lambda is a function of the epoch."""

    reads_losses = False
    """Whether lambda depends on the losses, so that it needs those of the whole batch before any weight."""

    def __init__(self, config: TeachingConfig, classes: int, epochs: int) -> None:
        self.config, self.classes, self.epochs = config, classes, epochs

    def update(self, epoch: int, smoothed_LN: Tensor, labels_N: Tensor) -> Tensor:
        """Returns lambda [L, C] for a batch of detached smoothed losses; epochs count from 1."""
        del labels_N
        lam = scheduled_lambda(self.config, epoch=epoch, epochs=self.epochs, classes=self.classes)
        return smoothed_LN.new_full((len(smoothed_LN), self.classes), lam)

    def state_dict(self) -> dict[str, Tensor]:
        """Returns what the pace remembers between steps, for a resumed training."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        del state


class QuantilePace(Pace):
    """A fraction of each head's recent samples is easy, over all classes together.

    Lambda moves slowly towards the quantile, within [ln(1 / 0.9), ln C]. In the first of several epochs it
    stays at ln C, as the paper's schedule does.
    """

    reads_losses = True

    def __init__(self, config: TeachingConfig, classes: int, epochs: int) -> None:
        super().__init__(config, classes, epochs)
        self.ceiling = math.log(classes)
        self.recent_LB = torch.empty(0, 0)
        self.lam_L = torch.empty(0)

    @torch.no_grad()
    def update(self, epoch: int, smoothed_LN: Tensor, labels_N: Tensor) -> Tensor:
        del labels_N
        if not len(self.lam_L):  # the first step tells the number of heads
            self.recent_LB = smoothed_LN.new_empty(len(smoothed_LN), 0)
            self.lam_L = smoothed_LN.new_full((len(smoothed_LN),), self.ceiling)
        # Keep the last losses of every head.
        device = smoothed_LN.device  # a restored state is on the CPU
        losses_LB = torch.cat([self.recent_LB.to(device), smoothed_LN], dim=1)
        self.recent_LB, self.lam_L = losses_LB[:, -self.config.window :], self.lam_L.to(device)
        if epoch > 1 or self.epochs == 1:
            # Move lambda towards the quantile, between -log 0.9 and ln C.
            fraction = scheduled_fraction(self.config, epoch, self.epochs)
            target_L = torch.quantile(self.recent_LB, fraction, dim=1).clamp(FLOOR, self.ceiling)
            self.lam_L = MEMORY * self.lam_L + (1 - MEMORY) * target_L
        return self.lam_L.to(smoothed_LN.dtype).unsqueeze(1).expand(-1, self.classes)

    def state_dict(self) -> dict[str, Tensor]:
        return {"recent": self.recent_LB, "lambda": self.lam_L}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.recent_LB, self.lam_L = state["recent"], state["lambda"]


class ClassQuantilePace(Pace):
    """A fraction of each class's recent samples is easy, so that no class is hard as a whole.

    Under `class-quantile` the fraction follows the settings; under `own-accuracy` it is the head's own
    running mean of exp(-S), its mean probability of the true class under noise. There is no ceiling: a class
    whose losses all lie above ln C keeps its easy samples.
    """

    reads_losses = True

    def __init__(self, config: TeachingConfig, classes: int, epochs: int) -> None:
        super().__init__(config, classes, epochs)
        self.recent_LCB = torch.empty(0, classes, config.class_window)  # NaN where nothing was seen yet
        self.probability_L = torch.empty(0)

    @torch.no_grad()
    def update(self, epoch: int, smoothed_LN: Tensor, labels_N: Tensor) -> Tensor:
        probability_L = torch.exp(-smoothed_LN).mean(1)
        if not len(self.probability_L):
            shape = (len(smoothed_LN), self.classes, self.config.class_window)
            self.recent_LCB = smoothed_LN.new_full(shape, math.nan)
            self.probability_L = probability_L
        device = smoothed_LN.device
        self.recent_LCB = self.recent_LCB.to(device)
        # Append every sample's loss to those of its class, and forget the oldest.
        for label in sorted(set(labels_N.tolist())):
            losses = torch.cat([self.recent_LCB[:, label], smoothed_LN[:, labels_N == label]], dim=1)
            self.recent_LCB[:, label] = losses[:, -self.config.class_window :]
        # Update the running mean probability of the true class.
        self.probability_L = MEMORY * self.probability_L.to(device) + (1 - MEMORY) * probability_L
        # Take the q-quantile of every class's losses, with a q of every head's own or that of the schedule.
        if self.config.pace == "own-accuracy":
            heads = zip(self.recent_LCB, self.probability_L, strict=True)
            lam_LC = torch.stack([recent_CB.nanquantile(q, dim=1) for recent_CB, q in heads])
        else:
            lam_LC = self.recent_LCB.nanquantile(scheduled_fraction(self.config, epoch, self.epochs), dim=2)
        # A class that was never seen has no losses yet; its threshold is not used in this step.
        return lam_LC.nan_to_num(nan=math.log(self.classes)).to(smoothed_LN.dtype)

    def state_dict(self) -> dict[str, Tensor]:
        return {"recent": self.recent_LCB, "probability": self.probability_L}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        # The losses are changed in place, which must not reach the state.
        self.recent_LCB, self.probability_L = state["recent"].clone(), state["probability"]


def build_pace(config: TeachingConfig, *, classes: int, epochs: int) -> Pace:
    """Returns the pace that the settings name, for `classes` classes and a training of `epochs` epochs."""
    kinds = {"quantile": QuantilePace, "class-quantile": ClassQuantilePace, "own-accuracy": ClassQuantilePace}
    return kinds.get(config.pace, Pace)(config, classes, epochs)


def scheduled_fraction(config: TeachingConfig, epoch: int, epochs: int) -> float:
    """Returns the fraction of easy samples under the quantile paces, which is linear in the epoch."""
    u = (epoch - 1) / max(1, epochs - 1)
    return (1 - u) * config.quantile_first + u * config.quantile_last


def scheduled_lambda(config: TeachingConfig, *, epoch: int, epochs: int, classes: int) -> float:
    """Returns lambda of `epoch` (counted from 1), which falls from ln C to its last value.

    The log10 shape is -log10(a t + b), written as an interpolation so that its ends are exact.
    """
    last = config.lambda_last
    if config.pace == "fixed" or epochs == 1 or epoch == epochs:
        return last
    first = math.log(classes) if config.lambda_first is None else config.lambda_first
    if epoch == 1:
        return first
    # u runs from 0 in the first epoch to 1 in the last.
    u = (epoch - 1) / (epochs - 1)
    if config.pace == "log10":
        return -math.log10((1 - u) * 10**-first + u * 10**-last)
    return (1 - u) * first + u * last
