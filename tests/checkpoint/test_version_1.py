"""What version 1 wrote still opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothheads import checkpoint

FILES = Path(__file__).parents[1] / "fixtures" / "v1"


@pytest.mark.parametrize("folder", [FILES / "run" / "checkpoint", FILES / "export" / "checkpoint"])
def test_a_checkpoint_of_version_1(folder: Path) -> None:
    ready = checkpoint.load(folder)
    assert ready.info.grid.max_value == 16
    assert ready.config.train.sigma > 0
