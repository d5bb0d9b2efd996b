"""The loss core: noise draws of a batch through all heads at once, on tensors [L, M, N, C].

Shape letters: L heads, M noise draws per image, N images, C classes. Draws are draw-major: all images with
their first draw, then all images with their second.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


def repeat_draws(images: Tensor, draws: int) -> Tensor:
    """Returns the images [M * N, ...]: all of them, then all of them again."""
    return images.repeat(draws, *(1 for _ in images.shape[1:]))


def draw_noise(images: Tensor, sigma: float, draws: int, generator: torch.Generator) -> Tensor:
    """Returns Gaussian noise [M * N, ...] for `draws` draws of each image."""
    import torch

    shape = (draws * len(images), *images.shape[1:])
    return sigma * torch.randn(shape, generator=generator, device=images.device, dtype=images.dtype)


def add_noise(images: Tensor, sigma: float, draws: int, generator: torch.Generator) -> Tensor:
    """Returns the noisy images [M * N, ...], not clipped: noise is added in pixel space."""
    return repeat_draws(images, draws) + draw_noise(images, sigma, draws, generator)


def forward_heads(model: nn.Module, noisy: Tensor, draws: int) -> Tensor:
    """Returns logits [L, M, N, C] of draw-major noisy images, in at least float32 whatever the autocast."""
    import torch

    # One pass of all draws of all images; the trunk runs once, every head once.
    logits: Tensor = model(noisy)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits.reshape(len(logits), draws, -1, logits.shape[-1])


def cross_entropy(logits_LMNC: Tensor, labels_N: Tensor) -> Tensor:
    """Returns the cross-entropy [L, M, N] of every draw."""
    from torch.nn import functional

    heads, draws, images, classes = logits_LMNC.shape
    labels = labels_N.expand(heads, draws, images).reshape(-1)
    losses = functional.cross_entropy(logits_LMNC.reshape(-1, classes), labels, reduction="none")
    return losses.view(heads, draws, images)


def nll_of_mean(logits_LMNC: Tensor, labels_N: Tensor) -> Tensor:
    """Returns -log of the label's mean probability over the draws [L, N]; of one draw, the cross-entropy."""
    # log mean_i p_i = logsumexp_i(log p_i) - log m.
    log_p_LMN = -cross_entropy(logits_LMNC, labels_N)
    return math.log(log_p_LMN.shape[1]) - log_p_LMN.logsumexp(1)


def kl_divergence(target: Tensor, logits_LMNC: Tensor) -> Tensor:
    """Returns KL(target || softmax of the logits) [L, M, N]; gradient flows through both."""
    return (target * (safe_log(target) - logits_LMNC.log_softmax(-1))).sum(-1)


def safe_log(probabilities: Tensor) -> Tensor:
    """Returns the logarithm, finite at 0 together with its gradient."""
    return probabilities.clamp_min(1e-20).log()
