"""Parts that the l2 attacks of training share. Inside `frozen` they differentiate the inputs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from smoothheads.objectives.losses import forward_heads, nll_of_mean, repeat_draws

if TYPE_CHECKING:
    from torch import Tensor, nn

AttackTarget: TypeAlias = Literal["heads", "ensemble"]


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Puts the model into evaluation mode, so that BatchNorm's buffers stay untouched, and lets no parameter
    require a gradient. Afterwards, also after an error, every module and parameter is as it was."""
    from smoothheads.models.multihead import temporary_mode

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
        """Returns logits [L, M, N, C] of N images."""
        return forward_heads(self.model, repeat_draws(images, self.draws) + self.noise, self.draws)


def attack_loss(logits_LMNC: Tensor, labels_N: Tensor, target: AttackTarget) -> Tensor:
    """Returns what an attack raises [N]: -log of the label's mean probability over the draws, either averaged
    over the heads or of the heads' mean logits."""
    attacked = logits_LMNC.mean(0, keepdim=True) if target == "ensemble" else logits_LMNC
    return nll_of_mean(attacked, labels_N).mean(0)


def input_gradient(loss: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Returns the gradient of the summed losses with respect to a batch of images."""
    import torch

    point = images.detach().requires_grad_()
    gradient: Tensor = torch.autograd.grad(loss(point).sum(), point)[0]
    return gradient


def l2_norm(batch: Tensor) -> Tensor:
    """Returns the l2 norm of every image, shaped so that it can divide the batch."""
    import torch

    norms: Tensor = torch.linalg.vector_norm(batch.flatten(1), dim=1)
    return norms.view(-1, *(1 for _ in batch.shape[1:]))


def normalize_l2(gradient: Tensor) -> Tensor:
    """Returns every image's gradient at norm 1; a gradient that is almost zero stays almost zero."""
    return gradient / (l2_norm(gradient) + 1e-8)


def projected_ascent(
    images: Tensor, radius: float, steps: int, direction: Callable[[Tensor], Tensor]
) -> Tensor:
    """Returns a perturbation found by projected gradient ascent (PGD); perturbed images stay in [0, 1].

    Args:
        radius: greatest norm of a perturbation (epsilon).
        steps: number of steps T; each has the length 2 epsilon / T.
        direction: gives the unit directions that lead uphill from a batch of images.
    """
    import torch

    delta = torch.zeros_like(images)
    for _ in range(steps):
        # Do a step, clip to valid pixels, project into the epsilon ball.
        delta = delta + 2 * radius / steps * direction(images + delta)
        delta = project((images + delta).clamp(0, 1) - images, radius)
    return delta


def project(perturbation: Tensor, radius: float) -> Tensor:
    """Returns every image's perturbation, shortened to at most `radius`."""
    return perturbation.renorm(2, 0, radius)
