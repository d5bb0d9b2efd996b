"""Stability training (Li et al. 2019): the prediction under noise is held to the clean one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothheads.config.check import NotNegative
from smoothheads.objectives.losses import add_noise, cross_entropy, forward_heads
from smoothheads.objectives.method import METHODS, Losses, Method, Step


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Stability(Method):
    """Li et al. 2019: cross-entropy on the clean image, and the noisy prediction held to the clean one."""

    name: ClassVar[str] = "stability"
    independent_heads: ClassVar[bool] = True
    strength: NotNegative = 2.0
    """Weight of the cross-entropy between the clean and the noisy prediction (1 at sigma 1)."""

    def __call__(self, step: Step) -> Losses:
        # Draw the noisy copies x + delta.
        noisy = add_noise(step.images, step.sigma, self.draws, step.generator)
        # Two forward passes keep BatchNorm's statistics of clean and noisy images apart.
        clean_L1NC = forward_heads(step.model, step.images, 1)
        noisy_LMNC = forward_heads(step.model, noisy, self.draws)
        # The stability term: cross-entropy H(f(x), f(x + delta)); gradient flows through both predictions.
        distance_LMN = -(clean_L1NC.softmax(-1) * noisy_LMNC.log_softmax(-1)).sum(-1)
        # The label is learned on the clean image alone.
        clean_LN = cross_entropy(clean_L1NC, step.labels).mean(1)
        # CE(f(x), y) + lambda H(f(x), f(x + delta)); easiness is judged on the noisy images.
        return Losses(
            per_sample_LN=clean_LN + self.strength * distance_LMN.mean(1),
            smoothed_LN=cross_entropy(noisy_LMNC, step.labels).mean(1),
        )
