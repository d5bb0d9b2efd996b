from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from smoothheads.checkpoint import Checkpoint
from smoothheads.checkpoint.join import join
from smoothheads.data import DataInfo
from smoothheads.errors import CheckpointError
from smoothheads.models import ModelConfig, build
from smoothheads.models.multihead import MultiHead
from smoothheads.training import RunConfig, TrainConfig
from smoothheads.types import Grid

INFO = DataInfo("toy", Grid(16), (1, 8, 8), tuple("abcd"), mean=(0.3,), std=(0.4,))


def images() -> Tensor:
    return torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0)) - 0.2


def member(seed: int, info: DataInfo = INFO, sigma: float = 0.25, **model: Any) -> Checkpoint:
    """A checkpoint in memory whose running statistics matter."""
    config = ModelConfig(**({"arch": "resnet8"} | model))
    network = build(config, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=seed)
    with torch.no_grad():
        network.train()(images())
    run = RunConfig(model=config, train=TrainConfig(sigma=sigma, seed=seed), init="earlier")
    return Checkpoint(network.eval(), run, info, weights_hash=str(seed), manifest={})


@torch.no_grad()
def logits(*networks: MultiHead) -> Tensor:
    return torch.cat([network(images()) for network in networks])


@pytest.mark.parametrize("cut", ["input", "stage1", "stage2", "stage3-mid", "fc"])
def test_the_heads_are_the_members_to_the_bit(cut: str) -> None:
    members = [member(seed, cut=cut, arch="resnet14") for seed in (1, 2, 3)]
    joined, run = join(members)
    assert torch.equal(logits(joined), logits(*(one.model for one in members)))
    assert run.model == ModelConfig(arch="resnet14", heads=3, cut="input")
    assert (run.train, run.init) == (members[0].config.train, None)


def test_members_with_several_heads_contribute_them_all() -> None:
    members = [member(1, heads=3, cut="stage2"), member(2), member(3, heads=2, cut="input")]
    joined, run = join(members)
    assert run.model.heads == 6
    assert torch.equal(logits(joined), logits(*(one.model for one in members)))
    again, _ = join([replace(members[1], model=joined, config=run), members[1]])
    assert torch.equal(logits(again), logits(joined, members[1].model))


def test_differing_normalisations_move_into_the_heads() -> None:
    centred = replace(INFO, std=(1.0,))
    members = [member(1), member(2, centred), member(3, normalize=False)]
    joined, run = join(members)
    assert run.model.normalize_heads
    assert torch.equal(logits(joined), logits(*(one.model for one in members)))
    more, more_run = join([replace(members[0], model=joined, config=run), member(4)])
    assert (more_run.model.heads, more_run.model.normalize_heads) == (4, True)
    assert torch.equal(logits(more), logits(joined, member(4).model))


def test_members_without_normalisation_stay_without() -> None:
    members = [member(seed, normalize=False) for seed in (1, 2)]
    joined, run = join(members)
    assert (run.model.normalize, run.model.normalize_heads) == (False, False)
    assert torch.equal(logits(joined), logits(*(one.model for one in members)))


def test_the_joined_network_shares_nothing_with_its_members() -> None:
    members = [member(1), member(2)]
    joined, _ = join(members)
    before = logits(joined)
    with torch.no_grad():
        for parameter in members[0].model.parameters():
            parameter.zero_()
    assert torch.equal(logits(joined), before)


def test_a_single_member_stays_as_it_is() -> None:
    alone = member(1, heads=2)
    assert join([alone]) == (alone.model, alone.config)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (member(2, arch="resnet14"), "same architecture: member 1 has resnet8 and member 3 has resnet14"),
        (member(2, sigma=0.5), r"same sigma: member 1 has 0\.25 and member 3 has 0\.5"),
        (member(2, replace(INFO, shape=(1, 12, 12))), r"same shape: .* \(1, 12, 12\)"),
        (member(2, replace(INFO, grid=Grid(255))), "same grid: member 1 has 16 and member 3 has 255"),
        (
            member(2, replace(INFO, class_names=tuple("abc"))),
            "same number of classes: .* member 3 has 3",
        ),
        (member(2, replace(INFO, class_names=tuple("abdc"))), "same name of class 2: .* member 3 has d"),
    ],
)
def test_members_that_do_not_belong_together_are_refused(other: Checkpoint, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        join([member(0), member(1), other])
