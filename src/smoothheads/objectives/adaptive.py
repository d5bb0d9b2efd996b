"""Lambda from the losses themselves: an easy share, or a mean weight, instead of a number to tune.

Each head keeps its last smoothed losses and takes lambda from them. Nothing depends on the number of classes,
the noise or the method.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from smoothheads.objectives.config import TeachingConfig
from smoothheads.objectives.teaching import logistic_weight

MEMORY = 0.9
FLOOR = math.log(1 / 0.9)


class Adaptive:
    """Lambda moves slowly towards its target, within [ln(1 / 0.9), ln(classes)]; in the first of several
    epochs it stays at ln(classes), like the paper's."""

    whole_batch = True

    def __init__(self, config: TeachingConfig, classes: int, epochs: int) -> None:
        self.config, self.epochs, self.ceiling = config, epochs, math.log(classes)
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


def budget_lambda(smoothed_LB: Tensor, budget: float, halvings: int = 60) -> Tensor:
    """Lambda [L] at which the soft weights of each head's losses have the mean `budget`; 0 if they exceed it
    already there. Weights grow with lambda, so halving an interval finds it."""
    low_L = smoothed_LB.new_zeros(len(smoothed_LB))
    high_L = smoothed_LB.amax(1)
    for _ in range(halvings):
        middle_L = (low_L + high_L) / 2
        lam_L1 = middle_L.unsqueeze(1)
        weights = torch.where(smoothed_LB <= lam_L1, 1.0, logistic_weight(smoothed_LB, lam_L1))
        enough = weights.mean(1) >= budget
        low_L, high_L = torch.where(enough, low_L, middle_L), torch.where(enough, middle_L, high_L)
    return high_L
