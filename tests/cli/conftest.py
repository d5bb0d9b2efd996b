"""A run that was trained once for all commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothheads.cli import main

SMALL = ["--data.subset.first", "80", "--train.epochs", "1", "--train.batch", "32", "--model.heads", "2"]


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be copied by whoever writes into it."""
    out = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "digits-some", *SMALL, "--out", str(out)]) == 0
    return out
