"""The tables of docs/audit.md are those of the program."""

from __future__ import annotations

import re
from pathlib import Path

from smoothheads.runs.liars import self_test

DOCUMENT = (Path(__file__).parents[1] / "docs" / "audit.md").read_text()
AUDIT = Path(__file__).parents[1] / "src" / "smoothheads" / "results" / "audit.py"


def test_the_table_of_liars_is_what_the_self_test_shows() -> None:
    rows = re.findall(r"^\| ([a-z][^|]*) \| ([a-z-]+) \|$", DOCUMENT.replace("\\`", "`"), re.MULTILINE)
    trials = self_test()
    assert rows[1:] == [(trial.liar, trial.must or "nothing") for trial in trials]
    assert all(trial.passed for trial in trials)


def test_every_code_of_a_finding_is_explained() -> None:
    codes = set(re.findall(r'Finding\(\s*"\w+", "([a-z-]+)"', AUDIT.read_text()))
    assert len(codes) > 10
    assert {code for code in codes if f"`{code}`" not in DOCUMENT} == set()
