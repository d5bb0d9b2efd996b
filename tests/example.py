"""A small training run with ledgers, and an export of it, made once per test session by today's code."""

from __future__ import annotations

import atexit
import io
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

from smoothheads.cli import main
from smoothheads.data import SubsetConfig, named
from smoothheads.models.config import ModelConfig
from smoothheads.runs.train import train_run
from smoothheads.training import RunConfig, TrainConfig

BUDGETS = ("fixed", "table", "radius", "anytime")
FEW = ("--n", "200", "--block", "50", "--first", "6", "--seed", "1", "--engine", "torch")


@cache
def example_run() -> Path:
    """Returns a run on digits: `checkpoint/`, `ledger/`, `ledger-BUDGET/`, and two shards."""
    folder = Path(tempfile.mkdtemp(prefix="example-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    config = RunConfig(
        data=named("digits", subset=SubsetConfig(first=300)),
        model=ModelConfig(arch="resnet8", heads=2),
        train=TrainConfig(epochs=2, batch=64),
    )
    run = folder / "run"
    train_run(config, run)
    for budget in BUDGETS:
        _certify(run, "--budget", budget, "--out", str(run / f"ledger-{budget}"))
    _certify(run, "--out", str(run / "ledger"))
    for shard in range(2):
        _certify(run, "--shard", f"{shard}/2", "--out", str(run / f"ledger-{shard}-of-2"))
    for lock in run.rglob(".lock"):
        lock.unlink()
    return run


@cache
def example_export() -> Path:
    """Returns an export of the run."""
    run = example_run()
    _quietly("export", str(run / "ledger"), "--out", str(run.parent / "export"))
    return run.parent / "export"


def _certify(run: Path, *options: str) -> None:
    _quietly("certify", str(run), *FEW, *options)


def _quietly(*arguments: str) -> None:
    """Runs a command without leaving output to the test that happens to come first."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(arguments) == 0
