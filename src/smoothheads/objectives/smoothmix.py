"""SmoothMix (Jeong et al. 2021): images mixed with adversarial neighbours, towards the uniform prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothheads.config.check import Count, Natural, NotNegative, Positive
from smoothheads.errors import ConfigError
from smoothheads.objectives.attack import (
    AttackTarget,
    FixedNoise,
    attack_loss,
    frozen,
    input_gradient,
    normalize_l2,
    project,
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
    """Steps of the attack (T)."""
    step_size: Positive = 0.5
    """Length of a step (alpha; 1 at sigma 0.5, 2 at sigma 1)."""
    max_norm: Positive | None = None
    """Greatest length of the whole perturbation. If omitted, it is unbounded."""
    mix_step: Natural = 0
    """The attack's iterate that serves as the clean image (1 at sigma 0.5 and 1)."""
    strength: NotNegative = 5.0
    """Weight of the mixing term (eta)."""
    warmup: Count = 10
    """Epochs over which the mixing term grows to its weight."""
    target_gradient: bool = True
    """Whether gradient flows through the mixed target."""
    attack_target: AttackTarget = "heads"
    """What the attack raises: the mean of the heads' losses, or the loss of their mean logits."""
    mask: bool | None = None
    """Mix only images whose mean prediction is correct. If omitted, the preset decides."""
    weigh_mix: bool | None = None
    """Whether teaching weights apply to the mixing term. If omitted, the preset decides."""

    def check(self) -> None:
        if self.mix_step >= self.steps:
            raise ConfigError(
                f"smoothmix takes an iterate before the last as the clean image: set mix_step below "
                f"steps = {self.steps}, not to {self.mix_step}."
            )

    def __call__(self, step: Step) -> Losses:
        import torch

        # Draw m noises per image, which attack, classification and mixing share.
        noise = draw_noise(step.images, step.sigma, self.draws, step.generator)
        view = FixedNoise(step.model, noise, self.draws)
        # Over the first epochs the mixing term and the reach of the clean image grow.
        warm = min(1.0, step.epoch / self.warmup)
        # Attack the smoothed classifier under these very draws (Algorithm 1 of SmoothMix).
        with frozen(step.model):
            clean, adversarial = self._neighbours(view, step, warm)
        # L_clf: the mean cross-entropy of the (almost) clean image over the draws.
        logits_LMNC = view.logits(clean)
        smoothed_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        # Mix with the adversarial neighbour: x_mix = (1 - c) x + c x~, c ~ U[0, 1/2] (A.3 of SOME).
        mix_N = torch.rand(len(clean), generator=step.generator, device=clean.device, dtype=clean.dtype) / 2
        mixed = torch.lerp(clean, adversarial, mix_N.view(-1, *(1 for _ in clean.shape[1:])))
        # y_mix = (1 - c) mean prediction + c / C: as far towards the uniform prediction.
        prediction_NC = mean_prediction(logits_LMNC if self.target_gradient else logits_LMNC.detach())
        target_NC = mixed_target(prediction_NC, mix_N)
        # L_mix = eta KL(y_mix || f(x_mix + delta)), the mean over the draws.
        mix_LN = kl_divergence(target_NC, view.logits(mixed)).mean(1)
        # The original mixes only images that are classified correctly; the heads of SOME mix all.
        masked = len(logits_LMNC) == 1 if self.mask is None else self.mask
        if masked:
            mix_LN = mix_LN * (prediction_NC.argmax(1) == step.labels)
        mix_LN = self.strength * warm * mix_LN
        # Teaching weighs both terms, in the authors' code of 2022 only the first.
        if self.weigh_mix is False:
            return Losses(smoothed_LN, smoothed_LN, unweighted_LN=mix_LN)
        return Losses(smoothed_LN + mix_LN, smoothed_LN)

    def _neighbours(self, view: FixedNoise, step: Step, warm: float) -> tuple[Tensor, Tensor]:
        """Returns the iterate of the attack that serves as the clean image, and the last one."""
        start = moving = images = step.images
        # T steps of gradient ascent on the smoothed classifier.
        for index in range(self.steps):
            if index == self.mix_step:
                start = moving
            # Step along the normalised gradient of -log of the mean probability over the draws.
            gradient = input_gradient(
                lambda x: attack_loss(view.logits(x), step.labels, self.attack_target), moving
            )
            moving = moving + self.step_size * normalize_l2(gradient)
            # Project into the ball, if there is one, and clip to valid pixels.
            if self.max_norm is not None:
                moving = images + project(moving - images, self.max_norm)
            moving = moving.clamp(0, 1)
        # During warm-up the new clean image stays close to the original.
        reach = warm * self.step_size * self.mix_step
        return (images + project(start - images, reach)).clamp(0, 1), moving


def mean_prediction(logits_LMNC: Tensor) -> Tensor:
    """Returns the mean softmax [N, C] over heads and draws."""
    return logits_LMNC.softmax(-1).mean((0, 1))


def mixed_target(prediction_NC: Tensor, mix_N: Tensor) -> Tensor:
    """Returns y_mix = (1 - c) prediction + c / C, each image with its own c."""
    import torch

    uniform = torch.full_like(prediction_NC, 1 / prediction_NC.shape[1])
    return torch.lerp(prediction_NC, uniform, mix_N.unsqueeze(1).to(prediction_NC.dtype))
