"""The one model class: a shared trunk and L independent heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from smoothheads.errors import ConfigError


class MultiHead(nn.Module):
    """`normalize -> trunk -> L heads`. A single network is L = 1; K separate networks have an identity trunk.

    Trunk and heads share no parameter: a ConfigError says so otherwise. What the trunk returns goes to every
    head unchanged, so a head must not write into its input.
    """

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

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits [L, N, C] for pixels in [0, 1] plus noise."""
        features = self.trunk(self.normalize(x_NCHW))
        return torch.stack([head(features) for head in self.heads])

    def head_parameters(self) -> list[list[nn.Parameter]]:
        """Every parameter of each head, in the same order for all heads."""
        return [list(head.parameters()) for head in self.heads]

    def head_weights(self) -> list[list[nn.Parameter]]:
        """The weights of convolutions and linear layers of each head: no biases, no BatchNorm."""
        return [[p for p in parameters if p.ndim >= 2] for parameters in self.head_parameters()]


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
