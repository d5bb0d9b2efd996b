"""kill -9 at every place where bytes reach the disk, and at random moments; then run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from smoothheads import checkpoint


def killed(mode: str, folder: Path) -> int:
    """How often the run in FOLDER/killed was killed before it came to its end."""
    command = [sys.executable, str(Path(__file__).with_name("killing.py")), mode, str(folder)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def without_time(out: Path) -> list[list[str]]:
    lines = (out / "ledger.tsv").read_bytes().decode().split("\n")
    return [line.split("\t")[:5] + line.split("\t")[6:] for line in lines]


def test_certification_killed_at_every_write_ends_with_the_same_bytes(tmp_path: Path) -> None:
    assert killed("certify-writes", tmp_path) >= 4
    assert without_time(tmp_path / "killed") == without_time(tmp_path / "whole")
    names = {path.name for path in (tmp_path / "killed").iterdir()}
    assert {"ledger.tsv", "manifest.json"} <= names


def test_certification_killed_fifty_times_at_random_ends_with_the_same_bytes(tmp_path: Path) -> None:
    assert killed("certify-random", tmp_path) >= 1
    assert without_time(tmp_path / "killed") == without_time(tmp_path / "whole")


def test_training_killed_at_every_write_ends_with_the_same_bits(tmp_path: Path) -> None:
    assert killed("train-writes", tmp_path) >= 10
    whole, broken = (tmp_path / name / "checkpoint" for name in ("whole", "killed"))
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert len((tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()) == 2
    checkpoint.load(broken)
