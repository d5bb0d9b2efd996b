"""Gaussian noise training (Cohen, Rosenfeld and Kolter 2019): the mean cross-entropy over the noise draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothheads.objectives.losses import add_noise, cross_entropy, forward_heads
from smoothheads.objectives.method import METHODS, Losses, Method, Step


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Gaussian(Method):
    """Cohen et al. 2019: cross-entropy on noisy images."""

    name: ClassVar[str] = "gaussian"
    independent_heads: ClassVar[bool] = True

    def __call__(self, step: Step) -> Losses:
        # x + delta with m draws of delta ~ N(0, sigma^2 I) per image (Cohen et al., Section 3.3).
        noisy = add_noise(step.images, step.sigma, self.draws, step.generator)
        logits_LMNC = forward_heads(step.model, noisy, self.draws)
        # The mean over the draws is the smoothed loss of the SOME paper (eq. 4).
        smoothed_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        return Losses(smoothed_LN, smoothed_LN)
