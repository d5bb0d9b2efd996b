"""CAT-RS (Jeong, Kim, Shin 2023): each image gets as much effort as the confidence in it deserves."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smoothheads import config
from smoothheads.errors import ConfigError
from smoothheads.objectives.attack import frozen, input_gradient, project, unit
from smoothheads.objectives.base import (
    Losses,
    Step,
    cross_entropy,
    draw_noise,
    forward_heads,
    kl_divergence,
    repeat_draws,
)


@dataclass(frozen=True, slots=True)
class CatRs:
    config: config.CatRs
    soft_labels: Tensor
    """Class frequencies under noise [images of the training set, C], from a pre-pass with another network."""

    def __call__(self, step: Step) -> Losses:
        draws = self.config.draws
        soft_NC = self._soft_labels(step)
        images = repeat_draws(step.images, draws)
        noise = draw_noise(step.images, step.sigma, draws, step.generator)
        logits_LMNC = forward_heads(step.model, images + noise, draws)
        losses_LMN = cross_entropy(logits_LMNC, step.labels)
        hits_LN = (logits_LMNC.argmax(-1) == step.labels).to(losses_LMN.dtype).mean(1)
        count_LN = torch.binomial(torch.full_like(hits_LN, draws), hits_LN, step.generator).clamp_min(1)
        with frozen(step.model):
            worst_noise = self._worst_noise(step, images, noise, soft_NC)
        worst_LMNC = forward_heads(step.model, images + worst_noise, draws)
        worst_LN = kl_divergence(soft_NC, worst_LMNC).amax(1)
        high_LN = torch.where(count_LN == draws, worst_LN, torch.zeros_like(worst_LN))
        per_sample_LN = lowest(losses_LMN, count_LN) + self.config.strength * high_LN
        return Losses(per_sample_LN, losses_LMN.mean(1))

    def _soft_labels(self, step: Step) -> Tensor:
        if step.positions is None:
            raise ConfigError("the positions of the images for cat-rs", "none", "set Step.positions")
        return self.soft_labels[step.positions.to(self.soft_labels.device)].to(step.images)

    def _worst_noise(self, step: Step, images: Tensor, noise: Tensor, soft_NC: Tensor) -> Tensor:
        """Noise near the drawn one, with its mean and size, on which the heads stray from the soft labels."""
        settings, moving = self.config, noise

        def strays(at: Tensor) -> Tensor:
            return kl_divergence(soft_NC, forward_heads(step.model, images + at, settings.draws)).mean(0)

        for _ in range(settings.steps):
            moved = moving + 2 * settings.epsilon / settings.steps * unit(input_gradient(strays, moving))
            moving = like_noise(noise + project(moved - noise, settings.epsilon), noise)
        return moving


def lowest(losses_LMN: Tensor, count_LN: Tensor) -> Tensor:
    """Sum of each image's `count` smallest losses over its draws, divided by the number of draws [L, N]."""
    ranks_M1 = torch.arange(losses_LMN.shape[1], device=losses_LMN.device).unsqueeze(1)
    kept = ranks_M1 < count_LN.unsqueeze(1)
    return (losses_LMN.sort(1).values * kept).mean(1)


def like_noise(moved: Tensor, noise: Tensor) -> Tensor:
    """Every copy's noise shifted and scaled to the mean and root mean square of the drawn one."""
    dims = tuple(range(1, noise.ndim))

    def size(batch: Tensor) -> Tensor:
        return batch.square().mean(dims, keepdim=True).sqrt()

    centred = moved - moved.mean(dims, keepdim=True)
    return noise.mean(dims, keepdim=True) + centred * size(noise) / size(moved)
