"""A certified run as users have it on the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smoothheads import checkpoint
from smoothheads.certify.config import CertifyConfig
from smoothheads.data import Splits, SubsetConfig, select
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.runs.certify import certify_run
from smoothheads.runs.models import open_checkpoint
from smoothheads.training import RunConfig


@pytest.fixture
def certified_run(
    tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits
) -> Callable[..., Path]:
    """`certified_run("name", seed=1, aggregation="head-1")`: checkpoint and ledger of 3 images."""

    def make(name: str = "run", seed: int = 0, **settings: object) -> Path:
        run, config = tmp_path / name, RunConfig(model=ModelConfig(arch="resnet8", heads=3))
        if not run.exists():
            checkpoint.save(
                run / "checkpoint", tiny_network(heads=3, seed=seed), config, small_digits.train.info
            )
        certify = CertifyConfig(**{"seed": 0, "sigma": 0.25, "n0": 20, "n": 100, "block": 20, **settings})  # type: ignore[arg-type]
        images = select(small_digits.test, SubsetConfig(first=3))
        certify_run(open_checkpoint(run), images, certify, run / "ledger", converted=run / "engines")
        return run

    return make
