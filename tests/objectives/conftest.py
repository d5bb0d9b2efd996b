"""The worked example of the method: three heads, two images, three classes, two draws, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.method import Step


class FixedLogits(nn.Module):
    """Answers with stored logits [L, M * N, C] whatever the images; the input still has a (zero) gradient."""

    def __init__(self, logits_LMNC: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits_LMNC.flatten(1, 2).clone())

    def forward(self, images: Tensor) -> Tensor:
        return self.logits[:, : len(images)] + 0 * images.flatten(1).sum(1)[:, None]


def tiny_network(heads: int) -> MultiHead:
    """A trunk and heads with BatchNorm, on images [N, 1, 4, 4] with three classes."""
    trunk = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(64, 16)
    )
    return MultiHead(
        trunk, [nn.Sequential(nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3)) for _ in range(heads)]
    )


@pytest.fixture(name="labels_N")
def labels() -> Tensor:
    return torch.tensor([0, 2])


@pytest.fixture(name="logits_LMNC")
def logits(labels_N: Tensor) -> Tensor:
    """Off-label logits are 0 and the label's is ln(2p / (1 - p)), which makes p its exact probability."""
    p_LMN = torch.tensor(
        [
            [[4 / 5, 1 / 2], [4 / 5, 1 / 8]],
            [[1 / 4, 9 / 10], [1 / 9, 2 / 5]],
            [[1 / 10, 1 / 7], [1 / 10, 1 / 7]],
        ],
        dtype=torch.float64,
    )
    label_logits = torch.log(2 * p_LMN / (1 - p_LMN))
    return label_logits.unsqueeze(-1) * nn.functional.one_hot(labels_N, 3)


@pytest.fixture(name="smoothed_LN")
def smoothed() -> Tensor:
    """exp of the smoothed losses is rational."""
    return torch.tensor([[5 / 4, 4], [6, 5 / 3], [10, 7]], dtype=torch.float64).log()


@pytest.fixture
def fixed_logits(logits_LMNC: Tensor) -> nn.Module:
    return FixedLogits(logits_LMNC)


@pytest.fixture
def tiny_heads() -> Callable[[int], MultiHead]:
    """Makes networks with the same weights at every call with the same number of heads."""

    def make(heads: int) -> MultiHead:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return tiny_network(heads)

    return make


@pytest.fixture
def make_step() -> Callable[..., Step]:
    """A step on 12 small images with three classes that a linear rule tells apart."""

    def make(model: nn.Module, **changes: object) -> Step:
        generator = torch.Generator().manual_seed(1)
        labels = torch.arange(12) % 3
        images = torch.rand(12, 1, 4, 4, generator=generator) * 0.5
        images[range(12), 0, labels] += 0.5
        step: dict[str, object] = {
            "model": model,
            "images": images,
            "labels": labels,
            "sigma": 0.25,
            "generator": torch.Generator().manual_seed(2),
            "epoch": 1,
        }
        return Step(**(step | changes))  # type: ignore[arg-type]

    return make
