"""Each benchmark script once, as small as it goes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.frame import BenchResults

from benchmarks import denoised, train_step, votes, whole_table
from smoothheads import checkpoint
from smoothheads.data import Splits, SubsetConfig, named
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.results.read import read_log
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


def test_denoised_network_beside_one_trained_with_noise(
    tmp_path: Path,
    tiny_network: Callable[..., MultiHead],
    small_digits: Splits,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The subcommand cifar10, on digits and with a blur for the denoiser; run again, it goes on."""
    monkeypatch.setattr(denoised, "load_test", lambda _: small_digits.test)
    run = RunConfig(data=named("digits"), model=ModelConfig(arch="resnet8", heads=1))
    network = tiny_network(heads=1)
    first = len(small_digits.test) // 6 // 2
    with torch.no_grad():  # it always gives the class of the first image that is certified
        list(network.parameters())[-1][small_digits.test.labels[first]] += 1000
    for name in ("clean", "noisy"):
        checkpoint.save(tmp_path / name, network, run, small_digits.train.info)
    options = argparse.Namespace(
        cifar10=None,
        clean=str(tmp_path / "clean"),
        noisy=str(tmp_path / "noisy"),
        count=6,
        sigma=0.25,
        n=100,
        engine="torch",
        precision="float32",
        out=tmp_path / "out",
    )
    for _ in range(2):
        denoised.certify_cifar10(lambda images, sigma: images.clamp(0, 1), options)
    table = capsys.readouterr().out
    assert table.count("| clean | ") == table.count("| denoised | ") == 2
    assert "ratio of ACR, denoised to trained with noise: 1.00 (95 % interval 1.00 to 1.00)" in table
    assert len(read_log(tmp_path / "out" / "denoised")) == 6


def test_whole_table_of_a_checkpoint(network: Path, tmp_path: Path) -> None:
    settings = whole_table.Settings(run=network, images=3, n=1000, plain_samples=50, engine="torch")
    values = published(whole_table.run(settings), tmp_path / "out")
    assert [len(each) for each in values["seconds"].values()] == [3] * 4
    assert all(count <= 1200 for count in values["samples"]["table"])
    assert values["times"]["table"]["low"] <= values["times"]["table"]["median"]
