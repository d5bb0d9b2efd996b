"""What the l2 attacks of training share. Inside `frozen` they differentiate the inputs and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from smoothheads.lazy import torch
from smoothheads.objectives.losses import forward_heads, nll_of_mean, repeat_draws

if TYPE_CHECKING:
    from torch import Tensor, nn

AttackTarget: TypeAlias = Literal["heads", "ensemble"]


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, so that BatchNorm's buffers stay untouched, and no parameter asks for a gradient.

    Afterwards, also after an error, every module and parameter is as it was.
    """
    from smoothheads.models.multihead import temporary_mode  # imports torch

    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    with temporary_mode(model, training=False):
        try:
            model.requires_grad_(False)
            yield
        finally:
            for parameter, required in before:
                parameter.requires_grad_(required)


@dataclass(frozen=True, slots=True)
class FixedNoise:
    """The network under the same noise at every call: what an attack on the smoothed classifier sees."""

    model: nn.Module
    noise: Tensor
    """[M * N, ...], draw-major."""
    draws: int

    def logits(self, images: Tensor) -> Tensor:
        """[L, M, N, C] of N images."""
        return forward_heads(self.model, repeat_draws(images, self.draws) + self.noise, self.draws)


def attack_loss(logits_LMNC: Tensor, labels_N: Tensor, target: AttackTarget) -> Tensor:
    """What an attack raises [N]: -log of the label's mean probability, over heads or of the mean logits."""
    attacked = logits_LMNC.mean(0, keepdim=True) if target == "ensemble" else logits_LMNC
    return nll_of_mean(attacked, labels_N).mean(0)


def input_gradient(loss: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Gradient of the summed losses with respect to a batch of images."""
    point = at.detach().requires_grad_()
    gradient: Tensor = torch.autograd.grad(loss(point).sum(), point)[0]
    return gradient


def lengths(batch: Tensor) -> Tensor:
    """l2 length of every image, shaped to divide the batch."""
    norms: Tensor = torch.linalg.vector_norm(batch.flatten(1), dim=1)
    return norms.view(-1, *(1 for _ in batch.shape[1:]))


def unit(gradient: Tensor) -> Tensor:
    """Every image's gradient at length 1; where there is next to no gradient, next to no step."""
    return gradient / (lengths(gradient) + 1e-8)


def projected_ascent(
    images: Tensor, radius: float, steps: int, direction: Callable[[Tensor], Tensor]
) -> Tensor:
    """The perturbation, at most `radius` long, after steps along the unit directions that
    lead uphill from a batch of images; the perturbed images stay in [0, 1]."""
    delta = torch.zeros_like(images)
    for _ in range(steps):
        delta = delta + 2 * radius / steps * direction(images + delta)
        delta = project((images + delta).clamp(0, 1) - images, radius)
    return delta


def project(perturbation: Tensor, radius: float) -> Tensor:
    """Every image's perturbation, shortened to at most `radius`."""
    return perturbation.renorm(2, 0, radius)
