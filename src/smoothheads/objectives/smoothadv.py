"""SmoothAdv (Salman et al. 2019): adversarial training of the smoothed classifier at fixed noise draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from smoothheads.config.check import Count, Positive, at_least
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
    from collections.abc import Callable

    from torch import Tensor


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class SmoothAdv(Method):
    """Salman et al. 2019: adversarial training of the smoothed classifier."""

    name: ClassVar[str] = "smoothadv"
    draws: int = 8
    """Noise draws per image in one step (m); the attack sees all of them."""
    attack: Literal["pgd", "ddn"] = "pgd"
    """Projected ascent, or decoupled direction and norm."""
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

    @property
    def trained_draws(self) -> int:
        return self.draws if self.train_on == "all" else 1

    def __call__(self, step: Step) -> Losses:
        # Draw m noises per image, which the attack and the training share.
        noise = draw_noise(step.images, step.sigma, self.draws, step.generator)
        # Attack the smoothed classifier: one perturbation per image, under all of its draws.
        with frozen(step.model):
            adversarial = self.perturbed(FixedNoise(step.model, noise, self.draws), step)
        # Train on the adversarial image under the same draws.
        draws = self.trained_draws
        noisy = repeat_draws(adversarial, draws) + noise[: draws * len(step.images)]
        smoothed_LN = cross_entropy(forward_heads(step.model, noisy, draws), step.labels).mean(1)
        return Losses(smoothed_LN, smoothed_LN)

    def perturbed(self, view: FixedNoise, step: Step) -> Tensor:
        """Returns the images after the attack, at most epsilon away, with pixels in [0, 1]."""
        import torch

        # Epsilon grows over the first epochs.
        radius = self.epsilon * min(1.0, step.epoch / self.warmup)

        def direction(at: Tensor) -> Tensor:
            # The unit gradient of -log of the label's mean probability over the draws.
            gradient = input_gradient(
                lambda x: attack_loss(view.logits(x), step.labels, self.attack_target), at
            )
            # Images without a gradient move at random.
            random = torch.randn(at.shape, generator=step.generator, device=at.device, dtype=at.dtype)
            chosen = torch.where(l2_norm(gradient) > 0, gradient, random)
            return chosen / l2_norm(chosen)

        if self.attack == "ddn":
            return self._ddn(view, step, radius, direction)
        return step.images + projected_ascent(step.images, radius, self.steps, direction)

    def _ddn(
        self, view: FixedNoise, step: Step, radius: float, direction: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Returns the images with the shortest perturbation that succeeded (DDN, Rony et al. 2019).

        A perturbation that fails is lengthened, one that succeeds is shortened.
        """
        import torch

        images = step.images
        farthest = l2_norm(torch.maximum(images, 1 - images))  # no valid image is farther away
        norm = torch.full_like(farthest, self.norm_start or radius)
        delta, best, best_norm = torch.zeros_like(images), torch.zeros_like(images), farthest
        for index in range(1, self.steps + 1):
            # It succeeds where the ensemble's most frequent prediction over the draws is not the label.
            with torch.no_grad():
                votes_MN = view.logits(images + delta).mean(0).argmax(-1)
            fooled = (votes_MN.mode(0).values != step.labels).view_as(norm)
            # Keep the perturbation if it succeeds and is the shortest so far.
            better = fooled & (l2_norm(delta) < best_norm)
            best, best_norm = torch.where(better, delta, best), torch.where(better, l2_norm(delta), best_norm)
            # Cosine annealing of the step size from 1 to 0.01, and a step along the gradient.
            step_size = 0.01 + 0.99 * (1 + math.cos(math.pi * index / self.steps)) / 2
            delta = delta + step_size * direction(images + delta)
            # Change the norm by a factor 1 +- gamma, whatever the direction.
            norm = norm * torch.where(fooled, 1 - self.norm_factor, 1 + self.norm_factor)
            norm = torch.minimum(norm, farthest)
            # Project onto the sphere of that norm, round to grey levels, clip to valid pixels.
            moved = self._rounded(images + delta * norm / l2_norm(delta).clamp_min(1e-12))
            delta = moved.clamp(0, 1) - images
        return images + self._rounded(project(best, radius))

    def _rounded(self, values: Tensor) -> Tensor:
        levels = self.levels
        return values if levels is None else (values * (levels - 1)).round() / (levels - 1)
