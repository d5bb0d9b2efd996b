"""DRT (Yang et al. 2022): heads whose margins have opposed input gradients, and are large."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smoothheads import config
from smoothheads.errors import ConfigError
from smoothheads.objectives.base import Losses, Step, cross_entropy, forward_heads, noisy_copies


@dataclass(frozen=True, slots=True)
class Drt:
    config: config.Drt

    def __call__(self, step: Step) -> Losses:
        """The mean over heads and images of the losses is the published objective divided by L."""
        settings = self.config
        copies = noisy_copies(step.images, step.sigma, settings.draws, step.generator).requires_grad_()
        logits_LMNC = forward_heads(step.model, copies, settings.draws)
        if len(logits_LMNC) == 1:
            raise ConfigError("two heads or more for drt", "1", "raise heads, or choose another method")
        smoothed_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        margins_LMN = margins(logits_LMNC)
        right_LMN = logits_LMNC.argmax(-1) == step.labels
        gradients = [torch.autograd.grad(m.sum(), copies, create_graph=True)[0] for m in margins_LMN]
        gradients_LMND = torch.stack(gradients).reshape(*margins_LMN.shape, -1)
        regulariser_LMN = settings.gradient_diversity * gradient_diversity(
            gradients_LMND, right_LMN
        ) - settings.confidence_margin * margins_LMN * right_LMN / right_LMN.sum().clamp_min(1)
        images = len(step.images)
        return Losses(smoothed_LN + images * regulariser_LMN.sum(1), smoothed_LN)


def margins(logits_LMNC: Tensor) -> Tensor:
    """Largest minus second largest probability [L, M, N]."""
    first, second = logits_LMNC.softmax(-1).topk(2, dim=-1).values.unbind(-1)
    return first - second


def gradient_diversity(gradients_LMND: Tensor, right_LMN: Tensor) -> Tensor:
    """Each head's half of its pairs' squared summed gradients [L, M, N]; over heads and copies it sums to the
    mean over all pairs that are both right on a copy."""
    heads = len(gradients_LMND)
    first, second = torch.triu_indices(heads, heads, offset=1, device=right_LMN.device)
    both_PMN = right_LMN[first] & right_LMN[second]
    pairs_PMN = (gradients_LMND[first] + gradients_LMND[second]).square().sum(-1) * both_PMN
    halves_PMN = pairs_PMN / 2 / both_PMN.sum().clamp_min(1)
    zero = torch.zeros_like(halves_PMN[0]).expand(heads, -1, -1)
    return zero.index_add(0, first, halves_PMN).index_add(0, second, halves_PMN)
