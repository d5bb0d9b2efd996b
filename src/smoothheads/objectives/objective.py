"""The objective of one step: the method's losses under teaching weights, plus the cosine constraint.

It follows Algorithm 1 of the SOME paper; equation numbers are the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.config import ObjectiveConfig, resolve_preset
from smoothheads.objectives.method import Losses, Step
from smoothheads.objectives.teaching import Teaching


@dataclass(frozen=True, slots=True)
class StepTerms:
    """The data term of a step, to be differentiated, and its metrics."""

    loss: Tensor
    metrics: dict[str, Tensor]
    """One number per head [L], detached, by name."""


class Objective:
    """`(weights * losses).mean() + weight * cosines`, for any number of heads; L = 1 is the plain method."""

    def __init__(self, config: ObjectiveConfig, *, classes: int, epochs: int) -> None:
        self.config = resolve_preset(config)
        self.method = self.config.method
        self.method.require(classes=classes)
        self.teaching = Teaching(self.config.teaching, classes=classes, epochs=epochs)

    def __call__(self, step: Step) -> StepTerms:
        """Returns the loss of a step that is not split."""
        # Algorithm 1, lines 1 and 2: draw noise and take the losses of every head on every image (eq. 4).
        losses = self.method(step)
        # Line 3, for which lambda and the class statistics move first.
        self.teaching.update(step.epoch, losses.smoothed_LN.detach(), step.labels)
        return self.terms(losses, step.labels)

    def terms(self, losses: Losses, labels_N: Tensor) -> StepTerms:
        """Returns the method's losses under the teaching weights, after `teaching.update` saw the batch."""
        # Algorithm 1, line 3: SPL coefficients of the smoothed losses (eq. 5), shifted by one head (eq. 6).
        # They are constants: no gradient flows through them.
        smoothed_LN = losses.smoothed_LN.detach()
        weights_LN = self.teaching(smoothed_LN, labels_N)
        lam_LC = self.teaching.lam_LC
        # Line 4: the weighted mean over heads and images (eq. 6; its mean over the draws is in the losses).
        loss = (weights_LN * losses.per_sample_LN).mean()
        # SmoothMix of 2022 leaves its mixing term unweighted.
        if losses.unweighted_LN is not None:
            loss = loss + losses.unweighted_LN.mean()
        # The paper's appendix sums over heads.
        if self.config.over_heads == "sum":
            loss = loss * len(weights_LN)
        squares_L = weights_LN.square().mean(1).clamp_min(1e-30)
        metrics = {
            "head_loss": smoothed_LN.mean(1),
            "lambda": lam_LC.mean(1),
            "easy_fraction": (smoothed_LN <= lam_LC[:, labels_N]).float().mean(1),
            "mean_weight": weights_LN.mean(1),
            "effective_share": weights_LN.mean(1).square() / squares_L,  # of the images, under the weights
        }
        return StepTerms(loss, metrics)

    def diversity(self, model: MultiHead) -> Tensor | None:
        """Returns the cosine term; None for a single head or when it is switched off."""
        settings = self.config.diversity
        if len(model.heads) == 1 or settings.weight == 0:
            return None
        # Line 5: the cosine constraint on the heads' parameters (eq. 3).
        heads = model.head_parameters() if settings.parameters == "all" else model.head_weights()
        return settings.weight * cosine_penalty(heads, settings.form)


def cosines(heads: Sequence[Sequence[Tensor]]) -> Tensor:
    """Returns the cosine of every pair i < j of heads, each head's parameters taken as one long vector."""
    flat_LP = torch.stack([torch.cat([p.flatten() for p in head]) for head in heads])
    # Cosines are inner products of vectors of length 1.
    unit_LP = F.normalize(flat_LP, dim=1)
    first, second = torch.triu_indices(len(heads), len(heads), offset=1)
    return (unit_LP @ unit_LP.T)[first, second]


def cosine_penalty(
    heads: Sequence[Sequence[Tensor]], form: Literal["cosine", "printed"] = "cosine"
) -> Tensor:
    """Returns eq. 3 of the SOME paper, zero when the heads are orthogonal.

    As its authors' code has it, this is the sum over pairs i < j of the squared cosine. As printed, it is the
    sum over ordered pairs of <h_i, h_j>^2 / (|h_i| |h_j|), in the tens of thousands for a ResNet-110 at
    initialisation.
    """
    if form == "cosine":
        return cosines(heads).square().sum()
    flat_LP = torch.stack([torch.cat([p.flatten() for p in head]) for head in heads])
    norms_L = flat_LP.norm(dim=1).clamp_min(1e-12)
    squared_LL = (flat_LP @ flat_LP.T).square() / (norms_L[:, None] * norms_L[None, :])
    # Every pair counts in both orders, and no head with itself.
    both: Tensor = squared_LL.sum() - squared_LL.diagonal().sum()
    return both
