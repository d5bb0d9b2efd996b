"""CAT-RS (Jeong, Kim, Shin 2023): each image gets as much effort as the confidence in it deserves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothheads.config.check import Count, NotNegative, Positive
from smoothheads.errors import ConfigError
from smoothheads.lazy import torch
from smoothheads.objectives.attack import frozen, input_gradient, project, unit
from smoothheads.objectives.losses import (
    cross_entropy,
    draw_noise,
    forward_heads,
    kl_divergence,
    repeat_draws,
)
from smoothheads.objectives.method import METHODS, Losses, Method, Preparation, Step

if TYPE_CHECKING:
    from torch import Tensor


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class CatRs(Method):
    """Jeong, Kim and Shin 2023: effort in proportion to the confidence on an image. Needs a teacher."""

    name: ClassVar[str] = "cat-rs"
    draws: int = 4
    strength: NotNegative = 0.5
    """Weight of the worst-case term (1 at sigma 0.5, 2 at sigma 1)."""
    epsilon: Positive = 1.0
    """Greatest change of a noise draw by the attack."""
    steps: Count = 4
    """Steps of the attack."""
    teacher: str | None = None
    """Folder of the checkpoint whose votes under noise are the soft labels (a Gaussian model)."""
    teacher_sigma: Positive = 0.25
    """Noise under which it votes."""
    teacher_draws: Count = 10_000
    """Votes per training image."""

    def prepare(self, preparation: Preparation) -> Tensor:
        """Soft labels: class frequencies of the teacher under noise [training images, C]."""
        from smoothheads.objectives.soft_labels import class_frequencies

        if self.teacher is None:
            raise ConfigError(
                "a teacher for cat-rs",
                "none",
                "set --objective.method.teacher to a Gaussian model's checkpoint",
            )
        return class_frequencies(
            preparation.open_model(self.teacher).to(preparation.device),
            preparation.dataset,
            sigma=self.teacher_sigma,
            draws=self.teacher_draws,
            seed=0,
            device=preparation.device,
            on_images=preparation.on_progress,
        )

    def __call__(self, step: Step) -> Losses:
        soft_NC = self._soft_labels(step)
        images = repeat_draws(step.images, self.draws)
        noise = draw_noise(step.images, step.sigma, self.draws, step.generator)
        logits_LMNC = forward_heads(step.model, images + noise, self.draws)
        losses_LMN = cross_entropy(logits_LMNC, step.labels)
        hits_LN = (logits_LMNC.argmax(-1) == step.labels).to(losses_LMN.dtype).mean(1)
        count_LN = torch.binomial(torch.full_like(hits_LN, self.draws), hits_LN, step.generator).clamp_min(1)
        with frozen(step.model):
            worst_noise = self._worst_noise(step, images, noise, soft_NC)
        worst_LMNC = forward_heads(step.model, images + worst_noise, self.draws)
        worst_LN = kl_divergence(soft_NC, worst_LMNC).amax(1)
        high_LN = torch.where(count_LN == self.draws, worst_LN, torch.zeros_like(worst_LN))
        per_sample_LN = lowest(losses_LMN, count_LN) + self.strength * high_LN
        return Losses(per_sample_LN, losses_LMN.mean(1))

    def _soft_labels(self, step: Step) -> Tensor:
        if step.prepared is None:
            raise ConfigError("soft labels for cat-rs", "none", "give what its `prepare` returns")
        return step.prepared.to(step.images)

    def _worst_noise(self, step: Step, images: Tensor, noise: Tensor, soft_NC: Tensor) -> Tensor:
        """Noise near the drawn one, with its mean and size, on which the heads stray from the soft labels."""
        moving = noise

        def strays(at: Tensor) -> Tensor:
            return kl_divergence(soft_NC, forward_heads(step.model, images + at, self.draws)).mean(0)

        for _ in range(self.steps):
            moved = moving + 2 * self.epsilon / self.steps * unit(input_gradient(strays, moving))
            moving = like_noise(noise + project(moved - noise, self.epsilon), noise)
        return moving


def lowest(losses_LMN: Tensor, count_LN: Tensor) -> Tensor:
    """Sum of each image's `count` smallest losses over its draws, divided by the number of draws [L, N]."""
    ranks_M1 = torch.arange(losses_LMN.shape[1], device=losses_LMN.device).unsqueeze(1)
    kept = ranks_M1 < count_LN.unsqueeze(1)
    return (losses_LMN.sort(1).values * kept).mean(1)


def like_noise(moved: Tensor, noise: Tensor) -> Tensor:
    """Every draw's noise shifted and scaled to the mean and root mean square of the drawn one."""
    dims = tuple(range(1, noise.ndim))

    def size(batch: Tensor) -> Tensor:
        return batch.square().mean(dims, keepdim=True).sqrt()

    centred = moved - moved.mean(dims, keepdim=True)
    return noise.mean(dims, keepdim=True) + centred * size(noise) / size(moved)
