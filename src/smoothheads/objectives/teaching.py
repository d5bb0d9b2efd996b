"""Circular teaching: every head judges which samples are easy, and its weights train the next head.

Equations (5) and (6) of the SOME paper. Weights are constants: no gradient flows through them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from smoothheads.objectives.config import TeachingConfig


def logistic_weight(smoothed: Tensor, lam: Tensor) -> Tensor:
    """(1 + e^-lambda) / (1 + e^(S - lambda)) in the sigmoid form, which cannot overflow."""
    return (1 + torch.exp(-lam)) * torch.sigmoid(lam - smoothed)


@torch.no_grad()
def teaching_weights(
    smoothed_LN: Tensor, lam_L: Tensor, config: TeachingConfig, generator: torch.Generator | None = None
) -> Tensor:
    """Weight [L, N] of every image in every head's loss, given the heads' smoothed losses and thresholds.

    A single head has no teacher, so it is trained plainly unless it is told to pace itself (`shift="self"`).
    """
    heads = len(smoothed_LN)
    if config.weights == "uniform" or (heads == 1 and config.shift != "self"):
        return torch.ones_like(smoothed_LN)
    teacher = _teachers(heads, config.shift, generator).to(smoothed_LN.device)
    judged, lam = smoothed_LN[teacher], lam_L[teacher].unsqueeze(1)
    graded = smoothed_LN if config.hard_weight_source == "student" else judged
    match config.weights:
        case "soft":
            full, partial = judged <= lam, logistic_weight(graded, lam)
        case "hard":
            full, partial = judged <= lam, torch.zeros_like(judged)
        case "high":
            # The paper gives no formula for favouring hard samples: the mirror image about lambda.
            full, partial = judged >= lam, (1 + torch.exp(-lam)) * torch.sigmoid(graded - lam)
    weights = torch.where(full, torch.ones_like(judged), partial)
    if config.tie == "zero":
        weights[judged == lam] = 0
    return weights


def _teachers(heads: int, shift: str, generator: torch.Generator | None) -> Tensor:
    """Entry k: which head's judgement trains head k."""
    order = torch.arange(heads)
    match shift:
        case "circular":
            return order.roll(1)
        case "reverse":
            return order.roll(-1)
        case "random":
            device = generator.device if generator else "cpu"
            return torch.randperm(heads, generator=generator, device=device)
        case _:
            return order
