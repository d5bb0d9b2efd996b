"""kill -9 at every place where bytes reach the disk, and at random moments; then run again."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smoothheads import checkpoint
from smoothheads.config import (
    CertifyConfig,
    DataConfig,
    Gaussian,
    ModelConfig,
    ObjectiveConfig,
    RunConfig,
    SubsetConfig,
    TrainConfig,
)
from smoothheads.data import Splits, select
from smoothheads.models import MultiHead
from smoothheads.runs.certify import certify_run
from smoothheads.runs.train import train_run

TRAIN = RunConfig(
    data=DataConfig(name="digits", subset=SubsetConfig(first=40)),
    model=ModelConfig(arch="resnet8", heads=2),
    objective=ObjectiveConfig(method=Gaussian(draws=1)),
    train=TrainConfig(epochs=2, batch=12, lr=0.1),
)


def die_at(calls: int) -> None:
    """From now on the process kills itself at its `calls`-th fsync or rename, before doing it."""
    left = calls

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    os.fsync, os.replace = deadly(os.fsync), deadly(os.replace)


def in_child(
    work: Callable[[], object], prepare: Callable[[], object], kill_after: float | None = None
) -> bool:
    """Runs `work` in a forked process, which may be killed; True if it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            prepare()
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), "the run failed instead of dying or finishing"
    return code == 0


def survive(work: Callable[[], object]) -> int:
    """Kills `work` at its first, second, third, ... write, starting again, until it gets through."""
    for kills in range(1, 200):
        if in_child(work, lambda calls=kills: die_at(calls)):  # type: ignore[misc]
            return kills - 1
    raise AssertionError("no end")


@pytest.fixture
def certify(
    tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits
) -> Callable[[Path], Path]:
    run = RunConfig(model=ModelConfig(arch="resnet8", heads=2))
    checkpoint.save(tmp_path / "network", tiny_network(heads=2), run, small_digits.train.info)
    ready = checkpoint.load(tmp_path / "network")
    images = select(small_digits.test, SubsetConfig(first=30))
    config = CertifyConfig(sigma=0.5, n0=5, n=20, block=5)
    return lambda out: certify_run(ready, images, config, out)


def without_time(out: Path) -> list[list[str]]:
    lines = (out / "ledger.tsv").read_bytes().decode().split("\n")
    return [line.split("\t")[:5] + line.split("\t")[6:] for line in lines]


def test_certification_killed_at_every_write_ends_with_the_same_bytes(
    tmp_path: Path, certify: Callable[[Path], Path]
) -> None:
    whole = certify(tmp_path / "whole")
    assert survive(lambda: certify(tmp_path / "killed")) >= 4
    assert without_time(tmp_path / "killed") == without_time(whole)
    names = {path.name for path in (tmp_path / "killed").iterdir()}
    assert {"ledger.tsv", "manifest.json"} <= names


def test_certification_killed_fifty_times_at_random_ends_with_the_same_bytes(
    tmp_path: Path, certify: Callable[[Path], Path]
) -> None:
    whole = certify(tmp_path / "whole")
    chance = random.Random(0)
    for _ in range(50):
        in_child(lambda: certify(tmp_path / "killed"), lambda: None, kill_after=chance.uniform(0, 0.06))
    certify(tmp_path / "killed")
    assert without_time(tmp_path / "killed") == without_time(whole)


def test_training_killed_at_every_write_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = train_run(TRAIN, tmp_path / "whole")

    def work() -> object:
        return train_run(TRAIN, tmp_path / "killed", resume=True, save_seconds=0)

    assert survive(work) >= 10
    killed = tmp_path / "killed" / "checkpoint"
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert len((tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()) == 2
    checkpoint.load(killed)
