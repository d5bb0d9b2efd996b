"""What one step minimises: the method's losses under teaching weights, plus the cosine constraint."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.config import ObjectiveConfig, resolve_preset
from smoothheads.objectives.diversity import cosine_penalty, printed_penalty
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
        losses = self.method(step)
        self.teaching.update(step.epoch, losses.smoothed_LN.detach(), step.labels, step.generator)
        return self.terms(losses, step.labels)

    def terms(self, losses: Losses, labels_N: Tensor) -> StepTerms:
        """Returns the method's losses under the teaching weights, after `teaching.update` saw the batch."""
        smoothed_LN = losses.smoothed_LN.detach()
        weights_LN = self.teaching(smoothed_LN, labels_N)
        lam_LC = self.teaching.lam_LC
        loss = (weights_LN * losses.per_sample_LN).mean()
        if losses.unweighted_LN is not None:
            loss = loss + losses.unweighted_LN.mean()
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
        """The cosine term; none for a single head or when it is switched off."""
        settings = self.config.diversity
        if len(model.heads) == 1 or settings.weight == 0:
            return None
        heads = model.head_parameters() if settings.parameters == "all" else model.head_weights()
        penalty = printed_penalty if settings.form == "printed" else cosine_penalty
        return settings.weight * penalty(heads)

    def state_dict(self) -> dict[str, Tensor]:
        """What the objective remembers between steps; part of a resumable training state."""
        return self.teaching.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.teaching.load_state_dict(state)
