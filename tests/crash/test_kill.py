"""kill -9 at every place where bytes reach the disk, and at random moments; then run again."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from smoothheads import checkpoint

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks, and kills what it forked")


@dataclass(frozen=True)
class Killed:
    folder: Path
    times: dict[str, int]
    """How often the run in the folder of this name was killed before it came to its end."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """All of it in one process, which starts only once."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, str(Path(__file__).with_name("killing.py")), str(folder)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Killed(folder, json.loads(shown.splitlines()[-1]))


def without_time(out: Path) -> list[list[str]]:
    lines = (out / "ledger.tsv").read_bytes().decode().split("\n")
    return [line.split("\t")[:5] + line.split("\t")[6:] for line in lines]


def test_certification_killed_at_every_write_ends_with_the_same_bytes(killed: Killed) -> None:
    assert killed.times["certify-writes"] >= 4
    assert without_time(killed.folder / "certify-writes") == without_time(killed.folder / "certified")
    names = {path.name for path in (killed.folder / "certify-writes").iterdir()}
    assert {"ledger.tsv", "manifest.json"} <= names


def test_certification_killed_fifty_times_at_random_ends_with_the_same_bytes(killed: Killed) -> None:
    assert killed.times["certify-random"] == 50
    runs = list(killed.folder.glob("certify-random-*"))
    assert runs
    for run in runs:
        assert without_time(run) == without_time(killed.folder / "certified")


def test_training_killed_at_every_write_ends_with_the_same_bits(killed: Killed) -> None:
    assert killed.times["train-writes"] >= 10
    whole, broken = (killed.folder / name / "checkpoint" for name in ("trained", "train-writes"))
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert len((killed.folder / "train-writes" / "metrics.jsonl").read_text().splitlines()) == 2
    checkpoint.load(broken)


def test_merge_and_export_killed_at_every_write_leave_an_empty_folder_or_all_of_it(killed: Killed) -> None:
    """Half a folder would be refused when the command is repeated, so that the killed runs end at all."""
    for name, done in (("merge-writes", "merged"), ("export-writes", "exported")):
        assert killed.times[name] >= 4
        files = {path.relative_to(killed.folder / done) for path in (killed.folder / done).rglob("*")}
        assert {path.relative_to(killed.folder / name) for path in (killed.folder / name).rglob("*")} == files
        assert files
