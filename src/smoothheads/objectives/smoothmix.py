"""SmoothMix (Jeong et al. 2021): images mixed with adversarial neighbours, towards the uniform answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothheads.config.check import Count, Natural, NotNegative, Positive
from smoothheads.errors import ConfigError
from smoothheads.lazy import torch
from smoothheads.objectives.attack import (
    AttackTarget,
    FixedNoise,
    attack_loss,
    frozen,
    input_gradient,
    project,
    unit,
)
from smoothheads.objectives.losses import cross_entropy, draw_noise, kl_divergence
from smoothheads.objectives.method import METHODS, Losses, Method, Step

if TYPE_CHECKING:
    from torch import Tensor


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class SmoothMix(Method):
    """Jeong et al. 2021: mixes images with their over-confident adversarial neighbours."""

    name: ClassVar[str] = "smoothmix"
    draws: int = 2
    steps: Count = 4
    """Steps of the attack."""
    step_size: Positive = 0.5
    """Length of a step (1 at sigma 0.5, 2 at sigma 1)."""
    max_norm: Positive | None = None
    """Greatest length of the whole perturbation; none: unbounded."""
    mix_step: Natural = 0
    """The attack's iterate that serves as the clean image (1 at sigma 0.5 and 1)."""
    strength: NotNegative = 5.0
    """Weight of the mixing term."""
    warmup: Count = 10
    """Epochs over which the mixing term grows to its weight."""
    target_gradient: bool = True
    """Whether gradient flows through the mixed target."""
    attack_target: AttackTarget = "heads"
    """What the attack raises: the mean of the heads' losses, or the loss of their mean logits."""
    mask: bool | None = None
    """Mix only images whose averaged answer is right; none: the preset decides."""
    weigh_mix: bool | None = None
    """Whether teaching weights apply to the mixing term; none: the preset decides."""

    def check(self) -> None:
        if self.mix_step >= self.steps:
            raise ConfigError(
                "mix_step < steps", f"{self.mix_step} of {self.steps}", "take an iterate before the last"
            )

    def __call__(self, step: Step) -> Losses:
        noise = draw_noise(step.images, step.sigma, self.draws, step.generator)
        view = FixedNoise(step.model, noise, self.draws)
        warm = min(1.0, step.epoch / self.warmup)
        with frozen(step.model):
            clean, adversarial = self._neighbours(view, step, warm)
        logits_LMNC = view.logits(clean)
        smoothed_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        share_N = torch.rand(len(clean), generator=step.generator, device=clean.device, dtype=clean.dtype) / 2
        mixed = torch.lerp(clean, adversarial, share_N.view(-1, *(1 for _ in clean.shape[1:])))
        answer_NC = mean_answer(logits_LMNC if self.target_gradient else logits_LMNC.detach())
        mix_LN = kl_divergence(mixed_target(answer_NC, share_N), view.logits(mixed)).mean(1)
        # The original mixes only what is answered rightly; the heads of SOME do without the mask.
        masked = len(logits_LMNC) == 1 if self.mask is None else self.mask
        if masked:
            mix_LN = mix_LN * (answer_NC.argmax(1) == step.labels)
        mix_LN = self.strength * warm * mix_LN
        if self.weigh_mix is False:
            return Losses(smoothed_LN, smoothed_LN, unweighted_LN=mix_LN)
        return Losses(smoothed_LN + mix_LN, smoothed_LN)

    def _neighbours(self, view: FixedNoise, step: Step, warm: float) -> tuple[Tensor, Tensor]:
        """The iterate that serves as the clean image, and the last one."""
        start = moving = images = step.images
        for index in range(self.steps):
            if index == self.mix_step:
                start = moving
            gradient = input_gradient(
                lambda x: attack_loss(view.logits(x), step.labels, self.attack_target), moving
            )
            moving = moving + self.step_size * unit(gradient)
            if self.max_norm is not None:
                moving = images + project(moving - images, self.max_norm)
            moving = moving.clamp(0, 1)
        reach = warm * self.step_size * self.mix_step
        return (images + project(start - images, reach)).clamp(0, 1), moving


def mean_answer(logits_LMNC: Tensor) -> Tensor:
    """Mean softmax [N, C] over heads and draws."""
    return logits_LMNC.softmax(-1).mean((0, 1))


def mixed_target(answer_NC: Tensor, share_N: Tensor) -> Tensor:
    """The answer drawn towards the uniform distribution by each image's share."""
    uniform = torch.full_like(answer_NC, 1 / answer_NC.shape[1])
    return torch.lerp(answer_NC, uniform, share_N.unsqueeze(1).to(answer_NC.dtype))
