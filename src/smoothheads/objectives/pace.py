"""The threshold lambda between easy and hard samples: how it moves during training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from smoothheads.objectives.config import TeachingConfig
from smoothheads.objectives.teaching import logistic_weight

MEMORY = 0.9
HALVINGS = 60
FLOOR = math.log(1 / 0.9)


class Pace:
    """Gives each head its lambda: here the same for all, a function of the epoch alone."""

    whole_batch = False
    """Whether lambda depends on the losses, and so wants those of all micro-batches of a step at once."""

    def __init__(self, config: TeachingConfig, classes: int, epochs: int) -> None:
        self.config, self.classes, self.epochs = config, classes, epochs

    def threshold(self, epoch: int, smoothed_LN: Tensor) -> Tensor:
        """Lambda [L] for this batch of detached smoothed losses; epochs count from 1."""
        lam = scheduled_lambda(self.config, epoch=epoch, epochs=self.epochs, classes=self.classes)
        return smoothed_LN.new_full((len(smoothed_LN),), lam)

    def state_dict(self) -> dict[str, Tensor]:
        """What it remembers, saved for a resume."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        del state


class Adaptive(Pace):
    """Lambda from the losses themselves: an easy share, or a mean weight, instead of a number to tune. Each
    head keeps its last smoothed losses; nothing depends on the number of classes, the noise or the method.

    Lambda moves slowly towards its target, within [ln(1 / 0.9), ln(classes)]; in the first of several
    epochs it stays at ln(classes), like the paper's.
    """

    whole_batch = True

    def __init__(self, config: TeachingConfig, classes: int, epochs: int) -> None:
        super().__init__(config, classes, epochs)
        self.ceiling = math.log(classes)
        self.recent_LB = torch.empty(0, 0)
        self.lam_L = torch.empty(0)

    @torch.no_grad()
    def threshold(self, epoch: int, smoothed_LN: Tensor) -> Tensor:
        self._remember(smoothed_LN)
        if epoch > 1 or self.epochs == 1:
            target_L = self._target(epoch).clamp(FLOOR, self.ceiling)
            self.lam_L = MEMORY * self.lam_L + (1 - MEMORY) * target_L
        return self.lam_L.to(smoothed_LN.dtype)

    def _remember(self, smoothed_LN: Tensor) -> None:
        heads = len(smoothed_LN)
        if not len(self.lam_L):
            self.recent_LB = smoothed_LN.new_empty(heads, 0)
            self.lam_L = smoothed_LN.new_full((heads,), self.ceiling)
        device = smoothed_LN.device
        self.recent_LB, self.lam_L = self.recent_LB.to(device), self.lam_L.to(device)
        self.recent_LB = torch.cat([self.recent_LB, smoothed_LN], dim=1)[:, -self.config.window :]

    def _target(self, epoch: int) -> Tensor:
        if self.config.pace == "budget":
            return budget_lambda(self.recent_LB, self.config.budget)
        u = (epoch - 1) / max(1, self.epochs - 1)
        share = (1 - u) * self.config.quantile_first + u * self.config.quantile_last
        return torch.quantile(self.recent_LB, share, dim=1)

    def state_dict(self) -> dict[str, Tensor]:
        return {"recent": self.recent_LB.clone(), "lambda": self.lam_L.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.recent_LB, self.lam_L = state["recent"].clone(), state["lambda"].clone()


def build_pace(config: TeachingConfig, *, classes: int, epochs: int) -> Pace:
    kind = Adaptive if config.pace in ("quantile", "budget") else Pace
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


def budget_lambda(smoothed_LB: Tensor, budget: float) -> Tensor:
    """Lambda [L] at which the soft weights of each head's losses have the mean `budget`; 0 if they exceed it
    already there. Weights grow with lambda, so halving an interval finds it."""
    low_L = smoothed_LB.new_zeros(len(smoothed_LB))
    high_L = smoothed_LB.amax(1)
    for _ in range(HALVINGS):
        middle_L = (low_L + high_L) / 2
        lam_L1 = middle_L.unsqueeze(1)
        weights = torch.where(smoothed_LB <= lam_L1, 1.0, logistic_weight(smoothed_LB, lam_L1))
        enough = weights.mean(1) >= budget
        low_L, high_L = torch.where(enough, low_L, middle_L), torch.where(enough, middle_L, high_L)
    return high_L
