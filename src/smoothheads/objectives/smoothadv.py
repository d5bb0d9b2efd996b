"""SmoothAdv (Salman et al. 2019): adversarial training of the smoothed classifier at fixed noise draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from smoothheads.config.check import Count, Positive, at_least
from smoothheads.errors import ConfigError
from smoothheads.objectives.attack import (
    AttackTarget,
    FixedNoise,
    attack_loss,
    frozen,
    input_gradient,
    l2_norm,
    project,
    projected_ascent,
)
from smoothheads.objectives.losses import cross_entropy, draw_noise, forward_heads, repeat_draws
from smoothheads.objectives.method import METHODS, Losses, Method, Step

if TYPE_CHECKING:
    from torch import Tensor


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class SmoothAdv(Method):
    """Salman et al. 2019: adversarial training of the smoothed classifier."""

    name: ClassVar[str] = "smoothadv"
    draws: int = 8
    """Noise draws per image in one step (m); the attack sees all of them."""
    attack: Literal["pgd", "ddn", "gradient-free"] = "pgd"
    """Projected ascent, decoupled direction and norm, or projected ascent without backpropagation."""
    epsilon: Positive = 255 / 256
    """Greatest length of the perturbation (2 at sigma 0.5 and 1)."""
    steps: Count = 10
    """Steps of the attack (T)."""
    warmup: Count = 10
    """Epochs over which epsilon grows to its value."""
    train_on: Literal["all", "first"] = "all"
    """Train on all noise draws of the adversarial image, or only on the first. A batch counts what is trained
    on: with `first` it has as many images as draws, and the attack sees DRAWS times as many."""
    attack_target: AttackTarget = "heads"
    """What the attack raises: the mean of the heads' losses, or the loss of their mean logits."""
    norm_start: Positive | None = None
    """First length of a perturbation under ddn; None is epsilon as far as warmed up, as in the original."""
    norm_factor: Positive = 0.05
    """Fraction by which ddn lengthens or shortens a perturbation after each step (gamma)."""
    levels: int | None = 256
    """Grey levels to which ddn rounds the image it attacks, as in the original; None means no rounding."""

    def check(self) -> None:
        if self.levels is not None:
            at_least("levels", self.levels, 2)
        if self.attack == "gradient-free" and self.draws == 1:
            raise ConfigError("A gradient-free attack estimates from the draws: set draws to 2 or more.")

    @property
    def trained_draws(self) -> int:
        return self.draws if self.train_on == "all" else 1

    def __call__(self, step: Step) -> Losses:
        # Draw m noises per image, which the attack and the training share.
        noise = draw_noise(step.images, step.sigma, self.draws, step.generator)
        # Epsilon grows over the first epochs.
        radius = self.epsilon * min(1.0, step.epoch / self.warmup)
        # Attack the smoothed classifier: one perturbation per image, under all of its draws.
        with frozen(step.model):
            attack = SmoothAttack(FixedNoise(step.model, noise, self.draws), step, self, radius)
            adversarial = attack.ddn() if self.attack == "ddn" else attack.pgd()
        # Train on the adversarial image under the same draws.
        draws = self.trained_draws
        noisy = repeat_draws(adversarial, draws) + noise[: draws * len(step.images)]
        smoothed_LN = cross_entropy(forward_heads(step.model, noisy, draws), step.labels).mean(1)
        return Losses(smoothed_LN, smoothed_LN)


@dataclass(frozen=True, slots=True)
class SmoothAttack:
    """One perturbation per image, shared by its draws, at most `radius` long; the image stays in [0, 1]."""

    view: FixedNoise
    step: Step
    settings: SmoothAdv
    radius: float

    def pgd(self) -> Tensor:
        """Returns the images after projected gradient ascent (PGD)."""
        images = self.step.images
        return images + projected_ascent(images, self.radius, self.settings.steps, self._direction)

    def ddn(self) -> Tensor:
        """Returns the images with the shortest perturbation that succeeded (DDN, Rony et al. 2019).

        A perturbation that fails is lengthened, one that succeeds is shortened.
        """
        import torch

        images, settings = self.step.images, self.settings
        farthest = l2_norm(torch.maximum(images, 1 - images))  # no valid image is farther away
        norm = torch.full_like(farthest, settings.norm_start or self.radius)
        delta, best, best_norm = torch.zeros_like(images), torch.zeros_like(images), farthest
        for index in range(1, settings.steps + 1):
            # Keep the perturbation if it succeeds and is the shortest so far.
            fooled = self._fooled(images + delta).view_as(norm)
            better = fooled & (l2_norm(delta) < best_norm)
            best, best_norm = torch.where(better, delta, best), torch.where(better, l2_norm(delta), best_norm)
            # Cosine annealing of the step size from 1 to 0.01, and a step along the gradient.
            step_size = 0.01 + 0.99 * (1 + math.cos(math.pi * index / settings.steps)) / 2
            delta = delta + step_size * self._direction(images + delta)
            # Change the norm by a factor 1 +- gamma, whatever the direction.
            norm = norm * torch.where(fooled, 1 - settings.norm_factor, 1 + settings.norm_factor)
            norm = torch.minimum(norm, farthest)
            # Project onto the sphere of that norm, round to grey levels, clip to valid pixels.
            moved = self._rounded(images + delta * norm / l2_norm(delta).clamp_min(1e-12))
            delta = moved.clamp(0, 1) - images
        return images + self._rounded(project(best, self.radius))

    def _rounded(self, values: Tensor) -> Tensor:
        levels = self.settings.levels
        return values if levels is None else (values * (levels - 1)).round() / (levels - 1)

    def _direction(self, at: Tensor) -> Tensor:
        """Returns the gradient at unit length per image; a random direction where there is none."""
        import torch

        # The gradient, by backpropagation or by an estimate.
        gradient = self._estimate(at) if self.settings.attack == "gradient-free" else self._gradient(at)
        # Images without a gradient move at random.
        random = torch.randn(at.shape, generator=self.step.generator, device=at.device, dtype=at.dtype)
        chosen = torch.where(l2_norm(gradient) > 0, gradient, random)
        return chosen / l2_norm(chosen)

    def _gradient(self, at: Tensor) -> Tensor:
        """Returns the gradient of -log of the label's mean probability over the draws."""
        target = self.settings.attack_target
        return input_gradient(lambda x: attack_loss(self.view.logits(x), self.step.labels, target), at)

    def _estimate(self, at: Tensor) -> Tensor:
        """Returns Stein's estimate of the gradient of -p_label, up to a factor: mean of loss times noise."""
        import torch

        with torch.no_grad():
            logits_LMNC = self.view.logits(at)
        if self.settings.attack_target == "ensemble":
            logits_LMNC = logits_LMNC.mean(0, keepdim=True)
        # The loss of a draw is the label's probability, negated.
        loss_MN = -torch.exp(-cross_entropy(logits_LMNC, self.step.labels)).mean(0)
        # Stein's lemma: the gradient of E[loss(x + delta)] is E[loss delta] / sigma^2.
        noise = self.view.noise.view(self.view.draws, *at.shape)
        return (loss_MN.view(*loss_MN.shape, *(1 for _ in at.shape[1:])) * noise).mean(0)

    def _fooled(self, at: Tensor) -> Tensor:
        """Returns where the ensemble's most frequent prediction over the draws is not the label [N]."""
        import torch

        with torch.no_grad():
            votes_MN = self.view.logits(at).mean(0).argmax(-1)
        return votes_MN.mode(0).values != self.step.labels
