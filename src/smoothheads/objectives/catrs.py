"""CAT-RS (Jeong, Kim and Shin 2023): each image gets as much effort as the confidence in it deserves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothheads.config.check import Count, NotNegative, Positive
from smoothheads.errors import ConfigError
from smoothheads.objectives.attack import frozen, input_gradient, normalize_l2, project
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
    """Weight of the worst-case term (lambda; 1 at sigma 0.5, 2 at sigma 1)."""
    epsilon: Positive = 1.0
    """Greatest change of a noise draw by the attack."""
    steps: Count = 4
    """Steps of the attack (T)."""
    teacher: str | None = None
    """Folder of the checkpoint whose votes under noise are the soft labels (a Gaussian model)."""
    teacher_sigma: Positive = 0.25
    """Noise under which it votes."""
    teacher_draws: Count = 10_000
    """Votes per training image."""

    def prepare(self, preparation: Preparation) -> Tensor:
        """Returns soft labels [training images, C]: class frequencies of the teacher under noise."""
        from smoothheads.objectives.soft_labels import class_frequencies

        if self.teacher is None:
            raise ConfigError("cat-rs needs a teacher: set objective.method.teacher to a checkpoint.")
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
        import torch

        if step.prepared is None:
            raise ConfigError("cat-rs needs soft labels: pass what its `prepare` returns.")
        soft_NC = step.prepared.to(step.images)
        # Draw M noises per image and take the cross-entropy of every draw.
        images = repeat_draws(step.images, self.draws)
        noise = draw_noise(step.images, step.sigma, self.draws, step.generator)
        logits_LMNC = forward_heads(step.model, images + noise, self.draws)
        losses_LMN = cross_entropy(logits_LMNC, step.labels)
        # Confidence: the fraction of draws that are classified correctly, for each head.
        hits_LN = (logits_LMNC.argmax(-1) == step.labels).to(losses_LMN.dtype).mean(1)
        # Bottom-K: K ~ Binomial(M, confidence), at least 1; only the K smallest losses are learned.
        count_LN = torch.binomial(torch.full_like(hits_LN, self.draws), hits_LN, step.generator).clamp_min(1)
        low_LN = bottom_k_mean(losses_LMN, count_LN)
        # Worst case: noise moved adversarially away from the soft labels, and the worst of its draws.
        with frozen(step.model):
            worst_noise = self._worst_noise(step, images, noise, soft_NC)
        worst_LMNC = forward_heads(step.model, images + worst_noise, self.draws)
        worst_LN = kl_divergence(soft_NC, worst_LMNC).amax(1)
        # The worst case counts only on images so confident that K = M.
        high_LN = torch.where(count_LN == self.draws, worst_LN, torch.zeros_like(worst_LN))
        # L_low + lambda L_high; teaching judges easiness by the mean cross-entropy.
        return Losses(low_LN + self.strength * high_LN, losses_LMN.mean(1))

    def _worst_noise(self, step: Step, images: Tensor, noise: Tensor, soft_NC: Tensor) -> Tensor:
        """Returns noise near the drawn one, of its mean and size, that moves the heads off soft labels."""
        moving = noise

        def divergence(at: Tensor) -> Tensor:
            return kl_divergence(soft_NC, forward_heads(step.model, images + at, self.draws)).mean(0)

        for _ in range(self.steps):
            # Do a step of length 2 epsilon / T along the gradient of KL(soft labels || prediction).
            gradient = input_gradient(divergence, moving)
            moved = moving + 2 * self.epsilon / self.steps * normalize_l2(gradient)
            # Project into the epsilon ball around the drawn noise, and restore that noise's mean and size.
            moving = match_moments(noise + project(moved - noise, self.epsilon), noise)
        return moving


def bottom_k_mean(losses_LMN: Tensor, count_LN: Tensor) -> Tensor:
    """Returns the sum of each image's K smallest losses over its draws, divided by all draws M [L, N]."""
    import torch

    # The k-th smallest loss counts if k is at most K.
    rank_M1 = torch.arange(losses_LMN.shape[1], device=losses_LMN.device).unsqueeze(1)
    counted = rank_M1 < count_LN.unsqueeze(1)
    return (losses_LMN.sort(1).values * counted).mean(1)


def match_moments(moved: Tensor, noise: Tensor) -> Tensor:
    """Returns every draw of `moved`, shifted and scaled to the mean and root mean square of `noise`."""
    dims = tuple(range(1, noise.ndim))

    def size(batch: Tensor) -> Tensor:
        return batch.square().mean(dims, keepdim=True).sqrt()

    centred = moved - moved.mean(dims, keepdim=True)
    return noise.mean(dims, keepdim=True) + centred * size(noise) / size(moved)
