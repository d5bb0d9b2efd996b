"""What `benchmarks.merge` writes is a ledger in shards, and `merge` joins it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import merge as study
from smoothheads.results.ledger import load
from smoothheads.results.row import to_line


@pytest.mark.skipif(sys.platform == "win32", reason="no memory to be measured")
def test_the_made_up_shards_merge_to_the_whole(tmp_path: Path) -> None:
    rows = [to_line(study.row_of(index)) for index in range(12)]
    study.write(tmp_path, rows, 5)
    facts = study.one(tmp_path)
    assert load(tmp_path / "whole").lines == rows
    assert facts["megabytes"] > 10
