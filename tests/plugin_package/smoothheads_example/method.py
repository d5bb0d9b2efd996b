"""A training method: Gaussian noise with smoothed labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothheads.errors import ConfigError
from smoothheads.objectives import Losses, Method, Step
from smoothheads.objectives.losses import add_noise, cross_entropy, forward_heads


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelSmoothing(Method):
    """Cross-entropy on noisy images, against labels that give a fraction to all classes alike."""

    name: ClassVar[str] = "label-smoothing"

    fraction: float = 0.1
    """Fraction of the label that all classes get in equal parts."""

    def check(self) -> None:
        if not 0 <= self.fraction < 1:
            raise ConfigError(f"Set fraction from 0 to below 1, not to {self.fraction:g}; 0.1 is usual.")

    def __call__(self, step: Step) -> Losses:
        noisy = add_noise(step.images, step.sigma, self.draws, step.generator)
        logits_LMNC = forward_heads(step.model, noisy, self.draws)
        hard_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        even_LN = -logits_LMNC.log_softmax(-1).mean(-1).mean(1)
        losses_LN = (1 - self.fraction) * hard_LN + self.fraction * even_LN
        return Losses(losses_LN, smoothed_LN=hard_LN)
