"""Consistency (Jeong and Shin 2020): a head's answers to an image's draws agree with their mean."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from smoothheads import config
from smoothheads.objectives.base import (
    Losses,
    Step,
    cross_entropy,
    forward_heads,
    kl_divergence,
    noisy_copies,
    safe_log,
)


@dataclass(frozen=True, slots=True)
class Consistency:
    config: config.Consistency

    def __call__(self, step: Step) -> Losses:
        draws = self.config.draws
        copies = noisy_copies(step.images, step.sigma, draws, step.generator)
        logits_LMNC = forward_heads(step.model, copies, draws)
        smoothed_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        return Losses(smoothed_LN + inconsistency(logits_LMNC, self.config), smoothed_LN)


def inconsistency(logits_LMNC: Tensor, settings: config.Consistency) -> Tensor:
    """The regulariser [L, N]. The mean is per head, over draws only, and the KL is KL(mean || answer)."""
    p_LMNC = logits_LMNC.softmax(-1)
    if settings.form == "mse":
        return settings.strength * (p_LMNC[:, 1] - p_LMNC[:, 0]).square().sum(-1)
    mean_L1NC = p_LMNC.mean(1, keepdim=True)
    if settings.mean_gradient is False:
        mean_L1NC = mean_L1NC.detach()
    kl_LN = kl_divergence(mean_L1NC, logits_LMNC).mean(1)
    entropy_LN = -(mean_L1NC * safe_log(mean_L1NC)).sum(-1).squeeze(1)
    entropy_weight = {"default": settings.entropy, "kl": 0.0, "xent": settings.strength}[settings.form]
    return settings.strength * kl_LN + entropy_weight * entropy_LN
