"""The loops that the field's codes run: what every engine is measured against.

Nothing here is used to certify anything. Noise comes from torch's own generator, nothing is keyed or checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from smoothheads.types import Counts


class MeanOfHeads(nn.Module):
    """Logits [N, C] of a network with heads, as other people's code expects them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x_NCHW: Tensor) -> Tensor:
        mean: Tensor = self.model(x_NCHW).mean(0)
        return mean


class Ensemble(nn.Module):
    """Separate networks: a whole forward pass each, then the mean of their logits."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return torch.stack([network(x_NCHW) for network in self.networks]).mean(0)


@torch.no_grad()
def sample_noise(
    network: nn.Module, x_CHW: Tensor, n: int, *, sigma: float, batch: int, classes: int
) -> Counts:
    """Repeat, randn, forward, argmax, count."""
    counts = np.zeros(classes, dtype=np.int64)
    while n > 0:
        size = min(batch, n)
        n -= size
        samples_NCHW = x_CHW.repeat(size, 1, 1, 1)
        noise_NCHW = torch.randn_like(samples_NCHW) * sigma
        counts += _count(network(samples_NCHW + noise_NCHW).argmax(1).numpy(), classes)
    return counts


def _count(predictions: NDArray[np.int64], classes: int) -> Counts:
    counts = np.zeros(classes, dtype=np.int64)
    for prediction in predictions:
        counts[prediction] += 1
    return counts


class SomeStep:
    """A step of SOME with Gaussian noise in plain float32: all draws through trunk and heads, smoothed
    losses, self-paced weights that train the next head, the cosine constraint, SGD."""

    def __init__(self, model: nn.Module, *, sigma: float, draws: int, lam: float, lr: float = 0.1) -> None:
        self.model = model.train()
        self.sigma, self.draws, self.lam = sigma, draws, lam
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)

    def __call__(self, images_NCHW: Tensor, labels_N: Tensor) -> float:
        draws = torch.cat(
            [images_NCHW + torch.randn_like(images_NCHW) * self.sigma for _ in range(self.draws)]
        )
        losses = []
        for logits_MC in self.model(draws):
            each = F.cross_entropy(logits_MC, labels_N.repeat(self.draws), reduction="none")
            losses.append(torch.stack(each.chunk(self.draws)).mean(0))
        loss = torch.zeros(())
        for k, loss_N in enumerate(losses):
            teacher_N = losses[k - 1].detach()
            hard_N = (1 + math.exp(-self.lam)) / (1 + torch.exp(teacher_N - self.lam))
            weight_N = torch.where(teacher_N <= self.lam, 1.0, hard_N)
            loss = loss + (weight_N * loss_N).mean() / len(losses)
        loss = loss + self._cosines()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.item()

    def _cosines(self) -> Tensor:
        heads = [torch.cat([p.flatten() for p in head.parameters()]) for head in self.model.heads]  # type: ignore[union-attr]
        total = torch.zeros(())
        for i, first in enumerate(heads):
            for second in heads[:i]:
                total = total + F.cosine_similarity(first, second, dim=0) ** 2
        return total
