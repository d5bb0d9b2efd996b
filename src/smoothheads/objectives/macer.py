"""MACER (Zhai et al. 2020): raises the certified radius of the images that are classified correctly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothheads.config.check import Natural, NotNegative, Positive
from smoothheads.objectives.losses import add_noise, cross_entropy, forward_heads, nll_of_mean
from smoothheads.objectives.method import METHODS, Losses, Method, Step

if TYPE_CHECKING:
    from torch import Tensor


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Macer(Method):
    """Zhai et al. 2020: raises the certified radius itself. Its batches count images, not draws."""

    name: ClassVar[str] = "macer"
    independent_heads: ClassVar[bool] = True
    min_classes: ClassVar[int] = 2
    draws: int = 16
    strength: NotNegative = 12.0
    """Weight of the radius term (lambda)."""
    temperature: Positive = 16.0
    """Inverse temperature of the softmax in the radius (beta)."""
    margin: Positive = 8.0
    """Radii beyond this, in units of sigma, are left alone (gamma)."""
    defer: Natural = 0
    """Epochs without the radius term; at sigma 1 the original waits for the learning rate's first drop."""

    def __call__(self, step: Step) -> Losses:
        # Draw k noises per image (Algorithm 1) and classify all draws at once.
        noisy = add_noise(step.images, step.sigma, self.draws, step.generator)
        logits_LMNC = forward_heads(step.model, noisy, self.draws)
        # Classification loss: -log of the label's mean probability over the draws.
        loss_LN = nll_of_mean(logits_LMNC, step.labels)
        # Robustness loss: lambda sigma / 2 max(gamma - xi, 0), once its time has come.
        if step.epoch > self.defer:
            loss_LN = loss_LN + self.strength * self.radius_loss(logits_LMNC, step.labels, step.sigma)
        # Teaching judges easiness by the mean cross-entropy, though MACER averages probabilities.
        return Losses(loss_LN, cross_entropy(logits_LMNC, step.labels).mean(1))

    def radius_loss(self, logits_LMNC: Tensor, labels_N: Tensor, sigma: float) -> Tensor:
        """Returns how far the soft radius stays below the margin [L, N]; 0 beyond it and for errors."""
        import torch

        # Soft smoothed classifier z: the mean softmax of beta times the logits, and its two largest classes.
        mean_LNC = (self.temperature * logits_LMNC).softmax(-1).mean(1)
        top_LN2 = mean_LNC.topk(2, dim=-1)
        # xi = Phi^-1(p_A) - Phi^-1(p_B); the certified radius is sigma / 2 * xi.
        tiny = torch.finfo(mean_LNC.dtype).eps
        quantiles = torch.special.ndtri(top_LN2.values.clamp(tiny, 1 - tiny))
        xi_LN = quantiles[..., 0] - quantiles[..., 1]
        # A hinge at gamma, only where the prediction is correct.
        counted = (top_LN2.indices[..., 0] == labels_N) & (xi_LN <= self.margin)
        return torch.where(counted, sigma / 2 * (self.margin - xi_LN), torch.zeros_like(xi_LN))
