"""SmoothMix (Jeong et al. 2021): images mixed with adversarial neighbours, towards the uniform answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smoothheads import config
from smoothheads.objectives.attack import FixedNoise, attack_loss, frozen, input_gradient, project, unit
from smoothheads.objectives.base import Losses, Step, cross_entropy, draw_noise, kl_divergence


@dataclass(frozen=True, slots=True)
class SmoothMix:
    config: config.SmoothMix

    def __call__(self, step: Step) -> Losses:
        settings = self.config
        noise = draw_noise(step.images, step.sigma, settings.draws, step.generator)
        view = FixedNoise(step.model, noise, settings.draws)
        warm = min(1.0, step.epoch / settings.warmup)
        with frozen(step.model):
            clean, adversarial = self._neighbours(view, step, warm)
        logits_LMNC = view.logits(clean)
        smoothed_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        share_N = torch.rand(len(clean), generator=step.generator, device=clean.device, dtype=clean.dtype) / 2
        mixed = torch.lerp(clean, adversarial, share_N.view(-1, *(1 for _ in clean.shape[1:])))
        answer_NC = mean_answer(logits_LMNC if settings.target_gradient else logits_LMNC.detach())
        mix_LN = kl_divergence(mixed_target(answer_NC, share_N), view.logits(mixed)).mean(1)
        # The original mixes only what is answered rightly; the heads of SOME do without the mask.
        masked = len(logits_LMNC) == 1 if settings.mask is None else settings.mask
        if masked:
            mix_LN = mix_LN * (answer_NC.argmax(1) == step.labels)
        mix_LN = settings.strength * warm * mix_LN
        if settings.weigh_mix is False:
            return Losses(smoothed_LN, smoothed_LN, unweighted_LN=mix_LN)
        return Losses(smoothed_LN + mix_LN, smoothed_LN)

    def _neighbours(self, view: FixedNoise, step: Step, warm: float) -> tuple[Tensor, Tensor]:
        """The iterate that serves as the clean image, and the last one."""
        settings, images = self.config, step.images
        start = moving = images
        for index in range(settings.steps):
            if index == settings.mix_step:
                start = moving
            gradient = input_gradient(
                lambda x: attack_loss(view.logits(x), step.labels, settings.attack_target), moving
            )
            moving = moving + settings.step_size * unit(gradient)
            if settings.max_norm is not None:
                moving = images + project(moving - images, settings.max_norm)
            moving = moving.clamp(0, 1)
        reach = warm * settings.step_size * settings.mix_step
        return (images + project(start - images, reach)).clamp(0, 1), moving


def mean_answer(logits_LMNC: Tensor) -> Tensor:
    """Mean softmax [N, C] over heads and draws."""
    return logits_LMNC.softmax(-1).mean((0, 1))


def mixed_target(answer_NC: Tensor, share_N: Tensor) -> Tensor:
    """The answer drawn towards the uniform distribution by each image's share."""
    uniform = torch.full_like(answer_NC, 1 / answer_NC.shape[1])
    return torch.lerp(answer_NC, uniform, share_N.unsqueeze(1).to(answer_NC.dtype))
