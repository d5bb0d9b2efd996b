"""The one model class: a shared trunk and L independent heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from smoothheads.errors import ConfigError
from smoothheads.models.config import ModelConfig


class MultiHead(nn.Module):
    """`normalize -> trunk -> L heads`. A single network is L = 1; K separate networks have an identity trunk.

    Trunk and heads share no parameter: a ConfigError says so otherwise. What the trunk returns goes to every
    head unchanged, so a head must not write into its input.
    """

    ensemble_weights: Tensor | None
    """Float64 [L] of the aggregation `weighted`, saved with the network; none unless `weigh` was called."""
    config: ModelConfig | None = None
    """How to build it by name; none for somebody's own module."""

    def __init__(
        self, trunk: nn.Module, heads: Sequence[nn.Module], normalize: nn.Module | None = None
    ) -> None:
        super().__init__()
        if not heads:
            raise ConfigError("at least one head", "none", "give one module per head")
        _refuse_shared_parameters([trunk, *heads])
        self.normalize = nn.Identity() if normalize is None else normalize
        self.trunk = trunk
        self.heads = nn.ModuleList(heads)
        self.register_buffer("ensemble_weights", None)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits [L, N, C] for pixels in [0, 1] plus noise."""
        features = self.trunk(self.normalize(x_NCHW))
        return torch.stack([head(features) for head in self.heads])

    def weigh(self, weights_L: Tensor | None) -> None:
        """Sets the learned weights, which may be negative, or takes them away; `forward` is as before."""
        if weights_L is not None:
            _check_weights(weights_L, len(self.heads))
            device = next(self.parameters(), weights_L).device
            weights_L = weights_L.detach().to(device=device, dtype=torch.float64, copy=True)
        self.ensemble_weights = weights_L

    def head_parameters(self) -> list[list[nn.Parameter]]:
        """Every parameter of each head, in the same order for all heads."""
        return [list(head.parameters()) for head in self.heads]

    def head_weights(self) -> list[list[nn.Parameter]]:
        """The weights of convolutions and linear layers of each head: no biases, no BatchNorm."""
        return [[p for p in parameters if p.ndim >= 2] for parameters in self.head_parameters()]


def as_multihead(model: nn.Module) -> MultiHead:
    """Any network that gives logits [N, C] is one head."""
    return model if isinstance(model, MultiHead) else MultiHead(nn.Identity(), [model])


def _refuse_shared_parameters(parts: Sequence[nn.Module]) -> None:
    owner: dict[int, int] = {}
    for index, part in enumerate(parts):
        for name, parameter in part.named_parameters():
            if owner.setdefault(id(parameter), index) != index:
                raise ConfigError(
                    "a trunk and heads with parameters of their own",
                    f"a shared parameter {name!r}",
                    "build every head anew or copy it",
                )


def _check_weights(weights_L: Tensor, heads: int) -> None:
    usable = weights_L.shape == (heads,) and bool(weights_L.isfinite().all() and weights_L.any())
    if heads < 2 or not usable:
        raise ConfigError(
            f"a finite weight for each of {heads} heads, not all 0",
            f"{weights_L.tolist()}",
            "fit them on this network's logits; one head needs none",
        )
