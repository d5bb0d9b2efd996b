"""The loops that the field's codes run: what every engine and our training step are measured against.

This is also the shortest complete statement of SOME in the repository. Nothing here is used to certify
anything: noise comes from torch's own generator, nothing is keyed and nothing is checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothheads.types import Counts


class MeanOfHeads(nn.Module):
    """Gives the mean logits [N, C] of a network with heads (eq:ensemble), as other code expects them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x_NCHW: Tensor) -> Tensor:
        mean: Tensor = self.model(x_NCHW).mean(0)
        return mean


class Ensemble(nn.Module):
    """Gives the mean logits [N, C] of separate networks, with a whole forward pass for each of them."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return torch.stack([network(x_NCHW) for network in self.networks]).mean(0)


@torch.no_grad()
def sample_noise(
    network: nn.Module, x_CHW: Tensor, n: int, *, sigma: float, batch: int, classes: int
) -> Counts:
    """Counts the classes of n noisy samples of one image: SampleUnderNoise of Cohen et al., Algorithm 1.

    Args:
        network: Gives logits [N, C].
        x_CHW: The image, with pixels in [0, 1].
        n: Number of samples.
        sigma: Standard deviation of the noise.
        batch: Samples per forward pass.
        classes: Number of classes, C.
    """
    counts = np.zeros(classes, dtype=np.int64)
    while n > 0:
        size = min(batch, n)
        n -= size
        # Repeat the image and add Gaussian noise.
        samples_NCHW = x_CHW.repeat(size, 1, 1, 1)
        noise_NCHW = torch.randn_like(samples_NCHW) * sigma
        # Count one vote per sample, in a Python loop as the reference code does.
        for prediction in network(samples_NCHW + noise_NCHW).argmax(1).numpy():
            counts[prediction] += 1
    return counts


class SomeStep:
    """Takes training steps of SOME with Gaussian noise in plain float32 (Algorithm 1 of the paper)."""

    def __init__(self, model: nn.Module, *, sigma: float, draws: int, lam: float, lr: float = 0.1) -> None:
        self.model = model.train()
        self.sigma, self.draws, self.lam = sigma, draws, lam
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)

    def __call__(self, images_NCHW: Tensor, labels_N: Tensor) -> float:
        # Line 1: draw m noises per image, and send all of them through the trunk and the heads at once.
        draws = torch.cat(
            [images_NCHW + torch.randn_like(images_NCHW) * self.sigma for _ in range(self.draws)]
        )
        # Line 2: the smoothed loss of every image under every head (eq:sloss).
        losses = []
        for logits_MC in self.model(draws):
            each = F.cross_entropy(logits_MC, labels_N.repeat(self.draws), reduction="none")
            losses.append(torch.stack(each.chunk(self.draws)).mean(0))
        loss = torch.zeros(())
        for k, loss_N in enumerate(losses):
            # Line 3: self-paced weights (eq:weights). Head k is taught by head k - 1, the first by the last.
            teacher_N = losses[k - 1].detach()
            hard_N = (1 + math.exp(-self.lam)) / (1 + torch.exp(teacher_N - self.lam))
            weight_N = torch.where(teacher_N <= self.lam, 1.0, hard_N)
            # Line 4: the weighted cross entropy, averaged over images and heads.
            loss = loss + (weight_N * loss_N).mean() / len(losses)
        # Line 5: the cosine constraint. Line 6: one update of all parameters.
        loss = loss + self._cosines()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.item()

    def _cosines(self) -> Tensor:
        """Returns the sum of squared cosines between the parameters of all pairs of heads (eq:ortho)."""
        heads = [torch.cat([p.flatten() for p in head.parameters()]) for head in self.model.heads]  # type: ignore[union-attr]
        total = torch.zeros(())
        for i, first in enumerate(heads):
            for second in heads[:i]:
                total = total + F.cosine_similarity(first, second, dim=0) ** 2
        return total
