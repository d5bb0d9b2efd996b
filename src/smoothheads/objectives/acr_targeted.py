"""The loss of Sun et al. 2025, a recipe that optimises ACR, not robustness. Its data: see `curriculum`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smoothheads import config
from smoothheads.objectives.attack import frozen, lengths, unit
from smoothheads.objectives.base import (
    Losses,
    Step,
    cross_entropy,
    draw_noise,
    forward_heads,
    repeat_draws,
)


@dataclass(frozen=True, slots=True)
class AcrTargeted:
    config: config.AcrTargeted

    def __call__(self, step: Step) -> Losses:
        draws = self.config.draws
        images = repeat_draws(step.images, draws)
        noise = draw_noise(step.images, step.sigma, draws, step.generator)
        if step.epoch > self.config.start:
            with frozen(step.model):
                noise = self._harder_noise(step, images, noise)
        logits_LMNC = forward_heads(step.model, images + noise, draws)
        smoothed_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        return Losses(smoothed_LN, smoothed_LN)

    def _harder_noise(self, step: Step, images: Tensor, noise: Tensor) -> Tensor:
        """Noise of the same length that raises the loss; a copy stops once the ensemble is wrong on it."""
        moving, radius = noise, lengths(noise)
        for _ in range(self.config.steps):
            point = moving.detach().requires_grad_()
            logits_LMNC = forward_heads(step.model, images + point, self.config.draws)
            loss = cross_entropy(logits_LMNC, step.labels).mean(0).sum()
            (gradient,) = torch.autograd.grad(loss, point)
            moved = moving + self.config.step_size * unit(gradient)
            wrong_MN = logits_LMNC.mean(0).argmax(-1) != step.labels
            moving = torch.where(wrong_MN.view_as(radius), moving, radius * unit(moved))
        return moving
