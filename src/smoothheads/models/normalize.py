"""Normalisation as the first layer of a network: noise comes before it, so that radii are in pixel units."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from smoothheads.config.check import positive
from smoothheads.errors import ConfigError


class Normalize(nn.Module):
    """`(x - mean) / std` per channel, for pixels in [0, 1] plus unclipped noise; saved with the weights."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std):
            raise ConfigError(
                "one mean and one std per channel", f"{len(mean)} and {len(std)}", "give both the same length"
            )
        for value in std:
            positive("std", value)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).reshape(-1, 1, 1))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return (x_NCHW - self.mean) / self.std
