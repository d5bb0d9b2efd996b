"""What docs/threats.md shows is run."""

from __future__ import annotations

import re
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


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    exec(compile(code, "threats.md", "exec"), {})
    (_, score, lower), (low, middle, high) = (
        [float(word) for word in line.split()] for line in capsys.readouterr().out.splitlines()
    )
    assert 0.5 < lower < score <= 1
    assert low < middle < high
    assert 0.1 / 8 < (high - low) / 2 < 0.02  # radius / 8 is how far the mean of 64 pixels can move
