"""A linear network, whose smoothed form changes its answer exactly at a known distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothheads.data import ArrayDataset, from_arrays
from smoothheads.models.multihead import MultiHead

COUNT, SIDE = 8, 6


class Half(nn.Module):
    """Class 1 on one side of a hyperplane, class 0 on the other; BatchNorm stands by to be disturbed."""

    def __init__(self, normal: Tensor, bias: float) -> None:
        super().__init__()
        self.normal, self.bias = nn.Parameter(normal), nn.Parameter(torch.tensor(bias))
        self.watch = nn.BatchNorm1d(len(normal))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        self.watch(flat)
        score = flat @ self.normal + self.bias
        return torch.stack([-score, score], 1)


@dataclass(frozen=True)
class HalfSpace:
    model: MultiHead
    data: ArrayDataset
    normal: NDArray[np.float64]
    """Of length 1."""
    distance: NDArray[np.float64]
    """Signed, of every image; the label is its sign."""

    def signed(self, image: NDArray[np.uint8]) -> float:
        """Distance of any image from the hyperplane, positive on the side of class 1."""
        index = 0
        moved = (image.astype(np.float64) - self.data.image(index)) / self.data.info.grid.max_value
        return float(self.distance[index] + moved.ravel() @ self.normal)


@pytest.fixture
def half_space() -> HalfSpace:
    """Images far from black and white, 0.2 to 0.6 from the hyperplane; three heads that average to it."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal(SIDE * SIDE)
    normal /= np.linalg.norm(normal)
    wanted = np.linspace(0.2, 0.6, COUNT) * np.where(np.arange(COUNT) % 2, 1, -1)
    middle = rng.integers(100, 156, (COUNT, SIDE * SIDE)) / 255
    middle += (wanted - (middle - 0.5) @ normal)[:, None] * normal
    images = np.rint(255 * middle).astype(np.uint8).reshape(COUNT, 1, SIDE, SIDE)
    distance = (images.reshape(COUNT, -1) / 255 - 0.5) @ normal
    data = from_arrays(images, (distance > 0).astype(np.int64), classes=2)
    scales = (2.0, 4.0, 6.0)
    heads = [Half(torch.from_numpy(k * normal).float(), -0.5 * k * float(normal.sum())) for k in scales]
    return HalfSpace(MultiHead(nn.Identity(), heads), data, normal, distance)
