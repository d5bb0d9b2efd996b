"""Each benchmark script once, as small as it goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.frame import BenchResults

from benchmarks import train_step, votes, whole_table
from smoothheads import checkpoint
from smoothheads.data import Splits, SubsetConfig, named
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.training import RunConfig


@pytest.fixture
def network(tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits) -> Path:
    data = named("digits", subset=SubsetConfig(first=150), validation=0.2)
    run = RunConfig(data=data, model=ModelConfig(arch="resnet8", heads=3))
    checkpoint.save(tmp_path / "run" / "checkpoint", tiny_network(heads=3), run, small_digits.train.info)
    return tmp_path / "run"


def published(results: BenchResults, out: Path) -> dict[str, Any]:
    data, _, plot = results.publish(out)
    assert plot.is_file()
    values: dict[str, Any] = json.loads(data.read_text())
    return values


def test_votes_ratios_to_the_plain_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = votes.Settings(
        network="digits", heads=2, samples=40, block=20, art=False, rounds=2, engines=("torch",)
    )
    values = published(votes.run(settings), tmp_path)
    assert list(values["contenders"]) == ["2 networks", "plain loop", "torch"]
    assert values["contenders"]["plain loop"]["ratios"]["plain loop"]["median"] == 1
    assert len(values["contenders"]["torch"]["rates"]) == 2
    assert "x plain loop" in capsys.readouterr().out


def test_train_step_contenders(tmp_path: Path) -> None:
    settings = train_step.Settings(network="digits", heads=2, images=8, rounds=2)
    values = published(train_step.run(settings), tmp_path)
    assert list(values["contenders"]) == ["plain step", "smoothheads", "smoothheads, channels first"]


def test_whole_table_of_a_checkpoint(network: Path, tmp_path: Path) -> None:
    settings = whole_table.Settings(run=network, images=3, n=1000, plain_samples=50, engine="torch")
    values = published(whole_table.run(settings), tmp_path / "out")
    assert [len(each) for each in values["seconds"].values()] == [3] * 4
    assert all(count <= 1200 for count in values["samples"]["table"])
    assert values["times"]["table"]["low"] <= values["times"]["table"]["median"]
