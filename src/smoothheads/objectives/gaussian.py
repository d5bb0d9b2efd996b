"""Gaussian noise training (Cohen, Rosenfeld, Kolter 2019): the mean cross-entropy over the noisy copies."""

from __future__ import annotations

from dataclasses import dataclass

from smoothheads import config
from smoothheads.objectives.base import Losses, Step, cross_entropy, forward_heads, noisy_copies


@dataclass(frozen=True, slots=True)
class Gaussian:
    config: config.Gaussian

    def __call__(self, step: Step) -> Losses:
        draws = self.config.draws
        copies = noisy_copies(step.images, step.sigma, draws, step.generator)
        smoothed_LN = cross_entropy(forward_heads(step.model, copies, draws), step.labels).mean(1)
        return Losses(smoothed_LN, smoothed_LN)
