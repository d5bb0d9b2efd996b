"""Damaged files of every kind: read, or refused with a SmoothheadsError; nothing else comes out.

`make fuzz` runs the same for longer; docs/fuzz.md has its counts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .readers import READERS
from .run import fuzz

COUNTS = {"audit": 50, "checkpoints": 60, "exports": 60}


@pytest.mark.parametrize("name", READERS)
def test_only_our_own_errors_come_out(name: str, tmp_path: Path) -> None:
    tally = fuzz(name, tmp_path, seeds=range(COUNTS.get(name, 100)))
    assert not tally.crashes
    assert tally.refused
