"""`make demo`, the same code with less training and fewer samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothheads.cli import main


def test_it_trains_certifies_and_compares_and_uses_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    quick = ["demo", "--out", str(out), "--epochs", "1", "--first", "6", "--n", "100"]
    assert main(quick) == 0
    shown = capsys.readouterr()
    assert "ACR" in shown.out
    assert "some against single, paired over 6 images" in shown.out
    assert str(out / "report.html") in shown.err
    assert "docs/paper.md has the measurements" in shown.err
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "SOME against a single network" in page
    assert (out / "certified-accuracy.png").is_file()
    weights = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    assert len(weights) == 2
    ledgers = {path: path.read_bytes() for path in out.rglob("ledger.tsv")}
    assert {len(rows.splitlines()) for rows in ledgers.values()} == {7}

    assert main(quick) == 0
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    assert {path: path.read_bytes() for path in ledgers} == ledgers


def test_the_makefile_runs_this_command() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    assert "/smoothheads demo --out demo" in makefile
