"""What one step minimises: the method's losses under teaching weights, plus the cosine constraint."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from smoothheads import config as cfg
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.base import Method, Step
from smoothheads.objectives.diversity import cosine_penalty
from smoothheads.objectives.gaussian import Gaussian
from smoothheads.objectives.pace import scheduled_lambda
from smoothheads.objectives.teaching import teaching_weights


@dataclass(frozen=True, slots=True)
class Terms:
    """The data term of a step, to be differentiated, and what is worth watching about it (detached)."""

    loss: Tensor
    head_losses_L: Tensor
    lam_L: Tensor
    easy_fraction_L: Tensor
    mean_weight_L: Tensor


class Objective:
    """`(weights * losses).mean() + weight * cosines`, for any number of heads; L = 1 is the plain method."""

    def __init__(self, config: cfg.ObjectiveConfig, *, classes: int, epochs: int) -> None:
        self.config, self.classes, self.epochs = config, classes, epochs
        self.method = build_method(config.method)

    def __call__(self, step: Step) -> Terms:
        losses = self.method(step)
        smoothed_LN = losses.smoothed_LN.detach()
        lam = scheduled_lambda(
            self.config.teaching, epoch=step.epoch, epochs=self.epochs, classes=self.classes
        )
        lam_L = smoothed_LN.new_full((len(smoothed_LN),), lam)
        weights_LN = teaching_weights(smoothed_LN, lam_L, self.config.teaching, step.generator)
        return Terms(
            loss=(weights_LN * losses.per_sample_LN).mean(),
            head_losses_L=smoothed_LN.mean(1),
            lam_L=lam_L,
            easy_fraction_L=(smoothed_LN <= lam_L.unsqueeze(1)).float().mean(1),
            mean_weight_L=weights_LN.mean(1),
        )

    def diversity(self, model: MultiHead) -> Tensor | None:
        """The cosine term; none for a single head or when it is switched off."""
        settings = self.config.diversity
        if len(model.heads) == 1 or settings.weight == 0:
            return None
        heads = model.head_parameters() if settings.parameters == "all" else model.head_weights()
        return settings.weight * cosine_penalty(heads)


def build_method(config: cfg.Method) -> Method:
    return Gaussian(config)
