"""What docs/threats.md shows is run."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from smoothheads import checkpoint
from smoothheads.cli import main
from smoothheads.data import Splits
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.training import RunConfig

DOCUMENT = (Path(__file__).parents[1] / "docs" / "threats.md").read_text()


def test_the_commands_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_network: Callable[..., MultiHead],
    small_digits: Splits,
) -> None:
    run = RunConfig(model=ModelConfig(arch="resnet8", heads=2))
    checkpoint.save(tmp_path / "runs" / "some", tiny_network(heads=2), run, small_digits.train.info)
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line)[1:] for line in DOCUMENT.splitlines() if line.startswith("smoothheads ")]
    assert len(commands) == 5
    for command in commands:
        quick = ["--n", "100", "--n0", "20", "--block", "20", "--first", "3"]
        assert main(command + (quick if command[0] == "certify" else [])) == 0, command
