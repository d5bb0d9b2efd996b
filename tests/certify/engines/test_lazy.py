"""Lazy consensus: the votes of consensus-K, with fewer passes of the other heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothheads import checkpoint
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines.lazy import Lazy
from smoothheads.data import Splits, SubsetConfig, select
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.results.read import read_log
from smoothheads.runs.certify import certify_run
from smoothheads.training import RunConfig
from smoothheads.types import Phase

from .builders import make_engine

Network = Callable[..., MultiHead]


@pytest.mark.parametrize("count", [20, 33, 200])
@pytest.mark.parametrize("aggregation", ["consensus-2", "consensus-3"])
def test_the_votes_are_those_of_the_whole_consensus(
    *,
    agreeing: MultiHead,
    small_digits: Splits,
    config: CertifyConfig,
    noise: Noise,
    aggregation: str,
    count: int,
) -> None:
    info, image = small_digits.train.info, small_digits.test.image(0)
    whole = make_engine(config, agreeing, info, noise)
    lazy = make_engine(config.changed(aggregation=aggregation, lazy_consensus=True), agreeing, info, noise)
    assert isinstance(lazy, Lazy)
    expected = whole.votes(image, 0, Phase.ESTIMATION, 0, count)
    got = lazy.votes(image, 0, Phase.ESTIMATION, 0, count)
    np.testing.assert_array_equal(got.for_aggregation(aggregation), expected.for_aggregation(aggregation))
    assert got.aggregations == (aggregation,)
    assert got.n == count
    assert lazy.describe()["lazy_consensus"] is True
    assert aggregation == f"consensus-{lazy.describe()['first_heads']}"


def test_the_work_that_was_saved_is_told(
    agreeing: MultiHead, small_digits: Splits, config: CertifyConfig, noise: Noise
) -> None:
    info = small_digits.train.info
    settings = config.changed(aggregation="consensus-2", lazy_consensus=True)
    engine = make_engine(settings, agreeing, info, noise)
    assert isinstance(engine, Lazy)
    image = small_digits.test.image(0)
    engine.votes(image, 0, Phase.ESTIMATION, 0, 200)
    work = engine.work
    assert (work.samples, work.passes) == (200, 10)
    assert 0 < work.agreement < 1
    assert work.late_passes == -(-(200 - work.agreed) // 20)
    assert work.late_passes < 10
    assert work.saved == 1 - work.late_passes / 10


class Constant(nn.Module):
    """The same answer to everything; complains when it is asked."""

    def __init__(self, answer: int, asked: list[int] | None = None) -> None:
        super().__init__()
        self.answer, self.asked = answer, asked

    def forward(self, x: Tensor) -> Tensor:
        if self.asked is not None:
            self.asked.append(len(x))
        logits = x.flatten(1)[:, :10] * 0
        logits[:, self.answer] = 1 + x.flatten(1)[:, 0].abs()
        return logits


def test_where_all_agree_the_other_heads_are_never_asked(small_digits: Splits, noise: Noise) -> None:
    asked: list[int] = []
    model = MultiHead(nn.Identity(), [Constant(3), Constant(3), Constant(5, asked)])
    settings = CertifyConfig.of(0.5, seed=0, block=20, aggregation="consensus-2", lazy_consensus=True)
    engine = make_engine(settings, model, small_digits.train.info, noise)
    image = small_digits.test.image(0)
    engine.votes(image, 0, Phase.ESTIMATION, 0, 20)  # probes every head once
    asked.clear()
    votes = engine.votes(image, 0, Phase.ESTIMATION, 0, 100)
    assert not asked
    assert votes.for_aggregation("consensus-2").tolist() == [0, 0, 0, 100, 0, 0, 0, 0, 0, 0]


class ByPlace(Constant):
    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        logits[0] += 1e-6
        return logits


def test_other_heads_to_which_the_place_matters_in_the_last_bit_are_refused(
    small_digits: Splits, noise: Noise
) -> None:
    model = MultiHead(nn.Identity(), [Constant(3), Constant(4), ByPlace(5)])
    settings = CertifyConfig.of(0.5, seed=0, block=20, aggregation="consensus-2", lazy_consensus=True)
    with pytest.raises(SoundnessError, match="with its place in the batch; use another engine"):
        make_engine(settings, model, small_digits.train.info, noise)


def test_features_need_not_be_images(small_digits: Splits, noise: Noise) -> None:
    torch.manual_seed(0)
    model = MultiHead(nn.Flatten(), [nn.Linear(64, 10) for _ in range(4)])
    settings = CertifyConfig.of(0.5, seed=0, block=20, aggregation="consensus-2")
    info, image = small_digits.train.info, small_digits.test.image(0)
    whole = make_engine(settings, model, info, noise).votes(image, 0, Phase.ESTIMATION, 0, 100)
    lazy = make_engine(settings.changed(lazy_consensus=True), model, info, noise)
    got = lazy.votes(image, 0, Phase.ESTIMATION, 0, 100)
    np.testing.assert_array_equal(got.for_aggregation("consensus-2"), whole.for_aggregation("consensus-2"))


def test_it_is_another_ledger_that_can_be_read(
    tiny_network: Network, small_digits: Splits, tmp_path: Path
) -> None:
    run = RunConfig(model=ModelConfig(arch="resnet8", heads=3))
    checkpoint.save(tmp_path / "network", tiny_network(heads=3), run, small_digits.train.info)
    ready, data = checkpoint.load(tmp_path / "network"), select(small_digits.test, SubsetConfig(first=3))
    full = CertifyConfig.of(0.5, seed=0, n0=20, n=100, block=20, aggregation="consensus-2")
    a = read_log(certify_run(ready, data, full, tmp_path / "full"))
    said: list[str] = []
    lazy = full.changed(lazy_consensus=True)
    b = read_log(certify_run(ready, data, lazy, tmp_path / "lazy", on_note=said.append))
    assert "of 360 samples; the other heads were spared" in said[0]
    certify_run(ready, data, lazy, tmp_path / "two", workers=2, on_note=said.append)
    assert said[1] == said[0]
    certify_run(ready, data, lazy, tmp_path / "two", on_note=said.append)  # nothing was left to do
    assert len(said) == 2
    assert a.radius.tolist() == b.radius.tolist()
    assert '"lazy_consensus": true' in (tmp_path / "lazy" / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"aggregation": "ensemble"}, "an aggregation consensus-K with lazy_consensus, got 'ensemble'"),
        (
            {"aggregation": "consensus-2", "blocks_per_pass": 2},
            "one block per pass for lazy_consensus, got 2",
        ),
    ],
)
def test_what_it_is_not_for_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CertifyConfig.of(0.5, seed=0, lazy_consensus=True, **settings)
