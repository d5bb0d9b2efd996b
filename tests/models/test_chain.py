from __future__ import annotations

import pytest
import torch
from torch import nn

from smoothheads.errors import ConfigError
from smoothheads.models.chain import Chain


def chain() -> Chain:
    stage = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    layers = {"first": nn.Linear(2, 2), "stage": stage, "last": nn.Linear(2, 3)}
    return Chain(layers, {"input": "first", "middle": "stage.2", "last": "last"})


@pytest.mark.parametrize(
    ("cut", "trunk_names", "head_names"),
    [
        ("input", [], ["first", "stage.0", "stage.2", "last"]),
        ("middle", ["first", "stage.0"], ["stage.2", "last"]),
        ("last", ["first", "stage.0", "stage.2"], ["last"]),
    ],
)
def test_both_sides_keep_their_names_and_weights(
    cut: str, trunk_names: list[str], head_names: list[str]
) -> None:
    network = chain()
    trunk, head = network.split(cut)
    assert [n.removesuffix(".weight") for n, _ in trunk.named_parameters() if "weight" in n] == trunk_names
    assert [n.removesuffix(".weight") for n, _ in head.named_parameters() if "weight" in n] == head_names
    assert list(trunk.parameters()) + list(head.parameters()) == list(network.parameters())
    x = torch.randn(4, 2)
    assert torch.equal(head(trunk(x)), network(x))


def test_an_unknown_cut_is_refused() -> None:
    with pytest.raises(ConfigError, match="'middle'"):
        chain().split("midle")
