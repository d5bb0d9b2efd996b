"""Each benchmark once, as a user runs it, as small as it goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smoothheads import checkpoint
from smoothheads.cli import main
from smoothheads.data import Splits, SubsetConfig, named
from smoothheads.models import ModelConfig, MultiHead
from smoothheads.training import RunConfig

QUICK = ["--rounds", "2", "--engines", "torch"]


@pytest.fixture
def network(tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits) -> Path:
    data = named("digits", subset=SubsetConfig(first=150), validation=0.2)
    run = RunConfig(data=data, model=ModelConfig(arch="resnet8", heads=3))
    checkpoint.save(tmp_path / "run" / "checkpoint", tiny_network(heads=3), run, small_digits.train.info)
    return tmp_path / "run"


def bench(out: Path, *arguments: str) -> dict[str, Any]:
    assert main(["bench", *arguments, "--out", str(out)]) == 0
    (found,) = out.glob("*.json")
    assert found.with_suffix(".svg").is_file()
    values: dict[str, Any] = json.loads(found.read_text())
    return values


def test_votes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--network", "digits", "--heads", "2", "--samples", "40", "--block", "20", "--no-art"]
    found = bench(tmp_path / "out", "votes", *small, *QUICK)
    assert list(found["contenders"]) == ["2 networks", "plain loop", "torch"]
    assert found["contenders"]["plain loop"]["ratios"]["plain loop"]["median"] == 1
    assert len(found["contenders"]["torch"]["rates"]) == 2
    assert "x plain loop" in capsys.readouterr().out


def test_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--network", "digits", "--heads", "2", "--images", "8", "--rounds", "2", "--profile"]
    found = bench(tmp_path / "out", "train", *small)
    assert list(found["contenders"]) == ["plain step", "smoothheads", "smoothheads, channels first"]
    shown = capsys.readouterr().out
    assert "after a resume" in shown
    assert "aten::convolution_backward" in shown


def test_engines_of_a_checkpoint(network: Path, tmp_path: Path) -> None:
    small = ["--images", "3", "--n", "100", "--samples", "40", "--block", "20"]
    found = bench(tmp_path / "out", "engines", str(network), *small, *QUICK)["contenders"]
    assert list(found) == ["3 networks", "plain loop", "torch", "torch, lazy consensus-2"]
    assert found["torch"]["facts"]["agrees"] == 1.0
    assert found["torch"]["facts"]["ACR"] >= 0
    assert 0 <= found["torch, lazy consensus-2"]["facts"]["consensus"] <= 1


def test_table_of_a_checkpoint(network: Path, tmp_path: Path) -> None:
    small = ["--images", "3", "--n", "1000", "--plain-samples", "50", "--engine", "torch", "--workers", "1"]
    budgets = ["--budgets", "table", "table, label-aware"]
    command = ["bench", "table", str(network), *small, *budgets, "--out", str(tmp_path / "out")]
    assert main(command) == 0
    file = tmp_path / "out" / "table-run.json"
    whole = json.loads(file.read_text())
    assert [row["position"] for row in whole["images"]] == [0, 1, 2]
    assert all(row["table"]["samples"] <= 1200 for row in whole["images"])
    assert whole["times"]["table"]["low"] <= whole["times"]["table"]["median"]
    rows = tmp_path / "out" / "table-run-0.jsonl"
    torn = rows.read_text().splitlines()
    rows.write_text("\n".join([*torn[:-1], torn[-1][:40]]))  # killed while it wrote the last one
    assert main(command) == 0
    again = json.loads(file.read_text())["images"]
    assert again[:2] == whole["images"][:2]  # to the bit: not measured again
    assert again[2]["table"]["certificate"] == whole["images"][2]["table"]["certificate"]
    assert main([*command, "--n", "2000"]) == 2


def test_what_can_be_measured_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench"])
    assert "scaling" in capsys.readouterr().out


def test_mistakes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "vote"]) == 2
    assert "votes" in capsys.readouterr().err
    assert main(["bench", "votes", "--network", "resnet21", "--no-art"]) == 2
    assert "resnet20" in capsys.readouterr().err
    assert main(["bench", "table"]) == 2
    assert "checkpoint" in capsys.readouterr().err
