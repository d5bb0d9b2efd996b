"""A network in two parts, for the rule consensus-K: what every copy goes through, and what few do."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothheads.errors import ConfigError, one_of
from smoothheads.models.aggregate import rules
from smoothheads.models.multihead import MultiHead


class Early(nn.Module):
    """Logits [K, N, C] of the first K heads, and the features that the other heads would read."""

    def __init__(self, model: MultiHead, first: int) -> None:
        super().__init__()
        self.normalize, self.trunk, self.heads = model.normalize, model.trunk, model.heads[:first]

    def forward(self, x_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(self.normalize(x_NCHW))
        if not isinstance(features, Tensor):
            raise ConfigError("a trunk with one output for lazy_consensus", "several", "switch it off")
        return torch.stack([head(features) for head in self.heads]), features


class Late(nn.Module):
    """Logits [L - K, N, C] of the other heads from the features."""

    def __init__(self, model: MultiHead, first: int) -> None:
        super().__init__()
        self.heads = model.heads[first:]

    def forward(self, features: Tensor) -> Tensor:
        return torch.stack([head(features) for head in self.heads])


def split(model: MultiHead, rule: str) -> tuple[Early, Late]:
    """Both parts share the network's modules."""
    known = [each for each in rules(len(model.heads)) if each.startswith("consensus-")]
    if not known:
        raise ConfigError("three heads or more for lazy_consensus", f"{len(model.heads)}", "switch it off")
    if rule not in known:
        raise one_of("consensus of this network", rule, known)
    first = int(rule.removeprefix("consensus-"))
    return Early(model, first), Late(model, first)
