"""Gaussian noise training (Cohen, Rosenfeld, Kolter 2019): the mean cross-entropy over the noise draws."""

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
    heads_apart: ClassVar[bool] = True

    def __call__(self, step: Step) -> Losses:
        noisy = add_noise(step.images, step.sigma, self.draws, step.generator)
        smoothed_LN = cross_entropy(forward_heads(step.model, noisy, self.draws), step.labels).mean(1)
        return Losses(smoothed_LN, smoothed_LN)
