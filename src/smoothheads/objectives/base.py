"""The loss core: noisy copies of a batch through all heads at once, on tensors [L, m, N, C].

Shape letters: L heads, M noise draws per image, N images, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Step:
    """What a method sees in one optimiser step; images are pixels in [0, 1], without noise."""

    model: nn.Module
    """Logits [L, N, C] of a batch: a MultiHead."""
    images: Tensor
    labels: Tensor
    sigma: float
    generator: torch.Generator
    epoch: int
    """Counted from 1."""


class Losses(NamedTuple):
    """A method's answer: the loss of every head on every image, and how hard each head finds the image."""

    per_sample_LN: Tensor
    smoothed_LN: Tensor
    """Mean cross-entropy over the draws (the paper's smoothed loss); teaching judges easiness by it."""


class Method(Protocol):
    """A base method. It never reduces over heads or images, so that teaching weights compose with it."""

    def __call__(self, step: Step) -> Losses: ...


def noisy_copies(images: Tensor, sigma: float, draws: int, generator: torch.Generator) -> Tensor:
    """[M * N, ...], draw-major: all images with their first draw, then all with their second, unclipped."""
    copies = images.repeat(draws, *(1 for _ in images.shape[1:]))
    noise = torch.randn(copies.shape, generator=generator, device=images.device, dtype=images.dtype)
    return copies + sigma * noise


def forward_heads(model: nn.Module, copies: Tensor, draws: int) -> Tensor:
    """Logits [L, M, N, C] of draw-major copies, in at least float32 whatever the autocast precision."""
    logits: Tensor = model(copies)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits.reshape(len(logits), draws, -1, logits.shape[-1])


def cross_entropy(logits_LMNC: Tensor, labels_N: Tensor) -> Tensor:
    """Cross-entropy [L, M, N] of every copy."""
    heads, draws, images, classes = logits_LMNC.shape
    labels = labels_N.expand(heads, draws, images).reshape(-1)
    losses = F.cross_entropy(logits_LMNC.reshape(-1, classes), labels, reduction="none")
    return losses.view(heads, draws, images)
