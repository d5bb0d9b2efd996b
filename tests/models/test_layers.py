from __future__ import annotations

import pytest
import torch
from torch import nn

from smoothheads.models.layers import BasicBlock, Block, Bottleneck, Conv, stage


def test_convolutions_are_drawn_with_the_variance_of_their_fan_out() -> None:
    torch.manual_seed(0)
    weight = Conv(16, 512, 3).weight
    expected = 2 / (9 * 512)
    assert weight.var().item() == pytest.approx(expected, rel=0.03)
    assert abs(weight.mean().item()) < 3 * (expected / weight.numel()) ** 0.5
    kurtosis = (weight / weight.std()).pow(4).mean().item()
    assert kurtosis == pytest.approx(3, abs=0.1), "a uniform distribution has 1.8"


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_a_block_whose_branch_is_silent_is_the_rectified_identity(block: Block) -> None:
    made = block(8 * block.expansion, 8, 1).eval()
    last = made.bn3 if isinstance(made, Bottleneck) else made.bn2
    nn.init.zeros_(last.weight)
    x = torch.randn(2, 8 * block.expansion, 4, 4)
    kept = x.clone()
    assert torch.equal(made(x), x.relu())
    assert torch.equal(x, kept), "a block must not write into its input"


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_only_the_first_block_of_a_stage_changes_the_shape(block: Block) -> None:
    made = stage(block, 4, 8, 3, stride=2)
    assert made(torch.rand(1, 4, 8, 8)).shape == (1, 8 * block.expansion, 4, 4)
    shortcuts = [isinstance(b.get_submodule("downsample"), nn.Identity) for b in made]
    assert shortcuts == [False, True, True]
