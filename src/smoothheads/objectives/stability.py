"""Stability training (Li et al. 2019): the noisy answer is held to the clean one."""

from __future__ import annotations

from dataclasses import dataclass

from smoothheads import config
from smoothheads.objectives.base import Losses, Step, cross_entropy, forward_heads, noisy_copies


@dataclass(frozen=True, slots=True)
class Stability:
    config: config.Stability

    def __call__(self, step: Step) -> Losses:
        """Gradient flows through both answers; two forwards keep BatchNorm's statistics apart."""
        draws = self.config.draws
        copies = noisy_copies(step.images, step.sigma, draws, step.generator)
        clean_L1NC = forward_heads(step.model, step.images, 1)
        noisy_LMNC = forward_heads(step.model, copies, draws)
        distance_LMN = -(clean_L1NC.softmax(-1) * noisy_LMNC.log_softmax(-1)).sum(-1)
        clean_LN = cross_entropy(clean_L1NC, step.labels).mean(1)
        return Losses(
            per_sample_LN=clean_LN + self.config.strength * distance_LMN.mean(1),
            smoothed_LN=cross_entropy(noisy_LMNC, step.labels).mean(1),
        )
