"""MACER (Zhai et al. 2020): raises the certified radius of the images that are answered rightly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smoothheads import config
from smoothheads.objectives.base import (
    Losses,
    Step,
    cross_entropy,
    forward_heads,
    nll_of_mean,
    noisy_copies,
)


@dataclass(frozen=True, slots=True)
class Macer:
    config: config.Macer

    def __call__(self, step: Step) -> Losses:
        """Easiness is judged by the mean cross-entropy, though the method itself averages probabilities."""
        draws = self.config.draws
        copies = noisy_copies(step.images, step.sigma, draws, step.generator)
        logits_LMNC = forward_heads(step.model, copies, draws)
        loss_LN = nll_of_mean(logits_LMNC, step.labels)
        if step.epoch > self.config.defer:
            loss_LN = loss_LN + self.config.strength * radius_loss(
                logits_LMNC, step.labels, step.sigma, self.config
            )
        return Losses(loss_LN, cross_entropy(logits_LMNC, step.labels).mean(1))


def radius_loss(logits_LMNC: Tensor, labels_N: Tensor, sigma: float, settings: config.Macer) -> Tensor:
    """How far the soft radius stays below the margin [L, N]; 0 for wrong answers and beyond the margin."""
    mean_LNC = (settings.temperature * logits_LMNC).softmax(-1).mean(1)
    top_LN2 = mean_LNC.topk(2, dim=-1)
    tiny = torch.finfo(mean_LNC.dtype).eps
    quantiles = torch.special.ndtri(top_LN2.values.clamp(tiny, 1 - tiny))
    xi_LN = quantiles[..., 0] - quantiles[..., 1]
    counted = (top_LN2.indices[..., 0] == labels_N) & (xi_LN <= settings.margin)
    return torch.where(counted, sigma / 2 * (settings.margin - xi_LN), torch.zeros_like(xi_LN))
