from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from smoothheads.certify.engines.rewrite import split
from smoothheads.errors import ConfigError
from smoothheads.models.multihead import MultiHead

Network = Callable[..., MultiHead]


@pytest.mark.parametrize("first", [2, 3])
def test_both_parts_together_are_the_network(trained_like: Network, first: int) -> None:
    model = trained_like(heads=4)
    early, late = split(model, f"consensus-{first}")
    x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits_KNC, features = early(x)
        assert len(logits_KNC) == first
        torch.testing.assert_close(torch.cat([logits_KNC, late(features)]), model(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("heads", "message"),
    [(4, "Unknown consensus of this network 'consensus-4': did you mean"), (2, "three heads or more")],
)
def test_a_consensus_that_leaves_no_head_over_is_refused(
    tiny_network: Network, heads: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        split(tiny_network(heads=heads), f"consensus-{heads}")


class Twice(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


def test_a_trunk_with_several_outputs_is_refused() -> None:
    early, _ = split(MultiHead(Twice(), [nn.Identity() for _ in range(3)]), "consensus-2")
    with pytest.raises(ConfigError, match="a trunk with one output for lazy_consensus, got several"):
        early(torch.zeros(1, 1, 2, 2))
