"""DRT (Yang et al. 2022): heads whose margins have opposed input gradients, and are large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from smoothheads.config.check import Count, Natural, NotNegative, Positive
from smoothheads.objectives.attack import FixedNoise, frozen
from smoothheads.objectives.losses import add_noise, cross_entropy, draw_noise, forward_heads, repeat_draws
from smoothheads.objectives.method import METHODS, Losses, Method, Step
from smoothheads.objectives.smoothadv import SmoothAdv

if TYPE_CHECKING:
    from torch import Tensor

    from smoothheads.models.multihead import MultiHead


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Drt(Method):
    """Yang et al. 2022: heads with opposed input gradients and large margins; needs two heads or more.

    The published weights could not be verified; the defaults are the smallest that we know of.
    """

    name: ClassVar[str] = "drt"
    min_heads: ClassVar[int] = 2
    min_classes: ClassVar[int] = 2
    gradient_diversity: NotNegative = 0.1
    """Weight of the squared length of the sum of two heads' margin gradients (rho_1)."""
    confidence_margin: NotNegative = 0.5
    """Weight of the margin between the two largest probabilities (rho_2)."""
    attack_steps: Natural = 0
    """Steps of SmoothAdv's attack, by which every head has an adversary of its own; 0: noise alone."""
    attack_epsilon: Positive = 2.0
    """Greatest length of that attack's perturbation."""
    attack_warmup: Count = 10
    """Epochs over which it grows to its value."""

    def __call__(self, step: Step) -> Losses:
        import torch

        # The noisy images of every head, from which the margins' input gradients start.
        noisy_L, logits_LMNC = self._attacked(step) if self.attack_steps else self._noisy(step)
        self.require(heads=len(logits_LMNC))
        # The sum over heads of their mean cross-entropy is the loss that both regularisers join.
        smoothed_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        # Margin M_j of each head j: largest minus second largest probability.
        margins_LMN = margins(logits_LMNC)
        correct_LMN = logits_LMNC.argmax(-1) == step.labels
        # Its gradient with respect to the input, through which the second derivative flows.
        gradients = [
            torch.autograd.grad(margins_MN.sum(), noisy, create_graph=True)[0]
            for margins_MN, noisy in zip(margins_LMN, noisy_L, strict=True)
        ]
        gradients_LMND = torch.stack(gradients).reshape(*margins_LMN.shape, -1)
        # rho_1 * |grad M_i + grad M_j|^2 over pairs that are both correct, minus rho_2 * M_j where correct.
        regulariser_LMN = self.gradient_diversity * gradient_diversity(
            gradients_LMND, correct_LMN
        ) - self.confidence_margin * margins_LMN * correct_LMN / correct_LMN.sum().clamp_min(1)
        # Both are means over the step, so the mean over heads and images is the published loss over L.
        images = len(step.images)
        return Losses(smoothed_LN + images * regulariser_LMN.sum(1), smoothed_LN)

    def _noisy(self, step: Step) -> tuple[list[Tensor], Tensor]:
        """Returns the noisy images, the same for all heads, and their logits [L, M, N, C]."""
        noisy = add_noise(step.images, step.sigma, self.draws, step.generator).requires_grad_()
        logits_LMNC = forward_heads(step.model, noisy, self.draws)
        return [noisy] * len(logits_LMNC), logits_LMNC

    def _attacked(self, step: Step) -> tuple[list[Tensor], Tensor]:
        """Returns every head's own adversarial images under the same noise, and its logits on them."""
        import torch

        noise = draw_noise(step.images, step.sigma, self.draws, step.generator)
        attack = SmoothAdv(steps=self.attack_steps, epsilon=self.attack_epsilon, warmup=self.attack_warmup)
        model = cast("MultiHead", step.model)
        members = [type(model)(model.trunk, [head], model.normalize) for head in model.heads]
        noisy_L = []
        # Attack every head by itself with SmoothAdv's projected ascent.
        with frozen(step.model):
            for member in members:
                images = attack.perturbed(FixedNoise(member, noise, self.draws), step)
                noisy_L.append((repeat_draws(images, self.draws) + noise).detach().requires_grad_())
        pairs = zip(members, noisy_L, strict=True)
        return noisy_L, torch.cat([forward_heads(member, noisy, self.draws) for member, noisy in pairs])


def margins(logits_LMNC: Tensor) -> Tensor:
    """Returns the largest minus the second largest probability [L, M, N]."""
    first, second = logits_LMNC.softmax(-1).topk(2, dim=-1).values.unbind(-1)
    return first - second


def gradient_diversity(gradients_LMND: Tensor, correct_LMN: Tensor) -> Tensor:
    """Returns each head's half of its pairs' squared summed gradients [L, M, N]; over heads and draws it sums
    to the mean over all pairs that are both correct on a draw."""
    import torch

    heads = len(gradients_LMND)
    # |grad M_i + grad M_j|^2 of the P pairs i < j, where both heads are correct.
    first, second = torch.triu_indices(heads, heads, offset=1, device=correct_LMN.device)
    both_PMN = correct_LMN[first] & correct_LMN[second]
    pairs_PMN = (gradients_LMND[first] + gradients_LMND[second]).square().sum(-1) * both_PMN
    # The mean over such pairs, of which either head carries one half.
    halves_PMN = pairs_PMN / 2 / both_PMN.sum().clamp_min(1)
    zero = torch.zeros_like(halves_PMN[0]).expand(heads, -1, -1)
    return zero.index_add(0, first, halves_PMN).index_add(0, second, halves_PMN)
