"""Consistency (Jeong and Shin 2020): a head's predictions under an image's draws agree with their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from smoothheads.config.check import NotNegative
from smoothheads.objectives.losses import add_noise, cross_entropy, forward_heads, kl_divergence, safe_log
from smoothheads.objectives.method import METHODS, Losses, Method, Step

if TYPE_CHECKING:
    from torch import Tensor


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Consistency(Method):
    """Jeong and Shin 2020: the predictions under the draws of an image are held to their mean."""

    name: ClassVar[str] = "consistency"
    independent_heads: ClassVar[bool] = True
    min_draws: ClassVar[int] = 2
    draws: int = 2
    form: Literal["default", "kl", "xent", "mse"] = "default"
    """KL to the mean plus entropy (default), no entropy (kl), equal weights (xent), first two draws (mse)."""
    strength: NotNegative = 20.0
    """Weight of the consistency term (10 at sigma 0.5 and 1); too much of it collapses the classifier."""
    entropy: NotNegative = 0.5
    """Weight of the mean prediction's entropy, in the default form."""
    mean_gradient: bool | None = None
    """Whether gradient flows through the mean prediction, as in the original. If omitted, the preset
    decides."""

    def __call__(self, step: Step) -> Losses:
        # Draw m noises per image and classify all draws at once.
        noisy = add_noise(step.images, step.sigma, self.draws, step.generator)
        logits_LMNC = forward_heads(step.model, noisy, self.draws)
        # L_clf is the mean cross-entropy over the draws; L_con is added to it (A.2 in SOME's appendix).
        smoothed_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        return Losses(smoothed_LN + self.inconsistency(logits_LMNC), smoothed_LN)

    def inconsistency(self, logits_LMNC: Tensor) -> Tensor:
        """Returns L_con = lambda mean_i KL(mean || p_i) + eta H(mean) of Jeong and Shin [L, N]."""
        p_LMNC = logits_LMNC.softmax(-1)
        if self.form == "mse":
            # The squared distance of the first two predictions.
            return self.strength * (p_LMNC[:, 1] - p_LMNC[:, 0]).square().sum(-1)
        # The mean prediction of each head, over its draws only and never across heads.
        mean_L1NC = p_LMNC.mean(1, keepdim=True)
        if self.mean_gradient is False:
            mean_L1NC = mean_L1NC.detach()
        # lambda KL(mean || prediction), as in the codes; the SOME paper prints the other direction.
        kl_LN = kl_divergence(mean_L1NC, logits_LMNC).mean(1)
        # eta H(mean): a low entropy of the mean keeps it from becoming uniform.
        entropy_LN = -(mean_L1NC * safe_log(mean_L1NC)).sum(-1).squeeze(1)
        entropy_weight = {"default": self.entropy, "kl": 0.0, "xent": self.strength}[self.form]
        return self.strength * kl_LN + entropy_weight * entropy_LN
