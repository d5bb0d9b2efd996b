"""SmoothAdv (Salman et al. 2019): adversarial training of the smoothed classifier at fixed noise draws."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from smoothheads import config
from smoothheads.objectives.attack import (
    FixedNoise,
    attack_loss,
    frozen,
    input_gradient,
    lengths,
    project,
)
from smoothheads.objectives.base import (
    Losses,
    Step,
    cross_entropy,
    draw_noise,
    forward_heads,
    repeat_draws,
)


@dataclass(frozen=True, slots=True)
class SmoothAdv:
    config: config.SmoothAdv

    def __call__(self, step: Step) -> Losses:
        settings = self.config
        noise = draw_noise(step.images, step.sigma, settings.draws, step.generator)
        radius = settings.epsilon * min(1.0, step.epoch / settings.warmup)
        with frozen(step.model):
            attack = Attack(FixedNoise(step.model, noise, settings.draws), step, settings, radius)
            adversarial = attack.ddn() if settings.attack == "ddn" else attack.pgd()
        draws = settings.draws if settings.train_on == "all" else 1
        copies = repeat_draws(adversarial, draws) + noise[: draws * len(step.images)]
        smoothed_LN = cross_entropy(forward_heads(step.model, copies, draws), step.labels).mean(1)
        return Losses(smoothed_LN, smoothed_LN)


@dataclass(frozen=True, slots=True)
class Attack:
    """One perturbation per image, shared by its draws, at most `radius` long; the image stays in [0, 1]."""

    view: FixedNoise
    step: Step
    settings: config.SmoothAdv
    radius: float

    def pgd(self) -> Tensor:
        images, steps = self.step.images, self.settings.steps
        delta = torch.zeros_like(images)
        for _ in range(steps):
            delta = delta + 2 * self.radius / steps * self._direction(images + delta)
            delta = project((images + delta).clamp(0, 1) - images, self.radius)
        return images + delta

    def ddn(self) -> Tensor:
        """Lengthens a perturbation that fails, shortens one that succeeds, and keeps the shortest success."""
        images, settings = self.step.images, self.settings
        farthest = lengths(torch.maximum(images, 1 - images))
        norm = torch.full_like(farthest, settings.norm_start)
        delta, best, best_norm = torch.zeros_like(images), torch.zeros_like(images), farthest
        for index in range(1, settings.steps + 1):
            fooled = self._fooled(images + delta).view_as(norm)
            better = fooled & (lengths(delta) < best_norm)
            best, best_norm = torch.where(better, delta, best), torch.where(better, lengths(delta), best_norm)
            step_size = 0.01 + 0.99 * (1 + math.cos(math.pi * index / settings.steps)) / 2
            delta = delta + step_size * self._direction(images + delta)
            norm = norm * torch.where(fooled, 1 - settings.norm_factor, 1 + settings.norm_factor)
            norm = torch.minimum(norm, farthest)
            delta = (images + delta * norm / lengths(delta).clamp_min(1e-12)).clamp(0, 1) - images
        return images + project(best, self.radius)

    def _direction(self, at: Tensor) -> Tensor:
        """Unit length per image; a random direction where there is no gradient."""
        gradient = self._estimate(at) if self.settings.attack == "gradient-free" else self._gradient(at)
        random = torch.randn(at.shape, generator=self.step.generator, device=at.device, dtype=at.dtype)
        chosen = torch.where(lengths(gradient) > 0, gradient, random)
        return chosen / lengths(chosen)

    def _gradient(self, at: Tensor) -> Tensor:
        target = self.settings.attack_target
        return input_gradient(lambda x: attack_loss(self.view.logits(x), self.step.labels, target), at)

    @torch.no_grad()
    def _estimate(self, at: Tensor) -> Tensor:
        """Stein's estimate of the gradient of -p_label, up to a factor: the mean of loss times noise."""
        logits_LMNC = self.view.logits(at)
        if self.settings.attack_target == "ensemble":
            logits_LMNC = logits_LMNC.mean(0, keepdim=True)
        loss_MN = -torch.exp(-cross_entropy(logits_LMNC, self.step.labels)).mean(0)
        noise = self.view.noise.view(self.view.draws, *at.shape)
        return (loss_MN.view(*loss_MN.shape, *(1 for _ in at.shape[1:])) * noise).mean(0)

    @torch.no_grad()
    def _fooled(self, at: Tensor) -> Tensor:
        """Whether most draws of the ensemble have another answer than the label [N]."""
        votes_MN = self.view.logits(at).mean(0).argmax(-1)
        return votes_MN.mode(0).values != self.step.labels
