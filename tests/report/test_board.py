"""Nothing enters the board without passing the audit."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.example import example_run

from smoothheads.cli import main
from smoothheads.report.board import board_html, collect
from smoothheads.studies.board import study_entries

HEAD = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A sound log, one with a radius for an abstention, and one that is no log."""
    (tmp_path / "good-0.25.tsv").write_text(HEAD + "0\t1\t1\t0.123\t1\t0:00:01\n1\t2\t1\t0.2\t0\t0:00:01\n")
    (tmp_path / "bad-0.25.tsv").write_text(HEAD + "0\t1\t-1\t0.123\t0\t0:00:01\n")
    (tmp_path / "<b>notes.txt").write_text("nothing")
    return tmp_path


def test_only_sound_logs_enter(logs: Path) -> None:
    entries, refused = collect(logs)
    assert [entry.path.name for entry in entries] == ["good-0.25.tsv"]
    assert "1 abstentions have a radius" in refused[logs / "bad-0.25.tsv"]
    assert "is no certification log" in refused[logs / "<b>notes.txt"]
    assert "method, network and data, by its name" in entries[0].claimed
    assert any("chosen on the votes" in each for each in entries[0].audit.unseen)


def test_the_page_links_to_the_evidence_and_escapes_names(logs: Path) -> None:
    entries, refused = collect(logs)
    text = board_html(entries, refused, title="<i>t", out=logs / "page" / "board.html")
    assert 'href="../good-0.25.tsv"' in text
    assert "<b>notes" not in text
    assert "<i>t" not in text
    assert "not seen by the audit" in text
    HTMLParser().feed(text)


def test_ledgers_are_verified_from_their_votes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _ = example_run(), capsys.readouterr()
    assert main(["board", str(example_run()), "--out", str(tmp_path / "board.html")]) == 0
    text = (tmp_path / "board.html").read_text()
    assert "every radius re-derived from its votes" in text
    assert "resnet8, 2 heads" in text
    assert "data-sort" in text
    assert re.search(r">\d/\d+.{0,40}\[\d, \d\]", text), "classes with a certificate, with an interval"
    assert re.search(r">0\.\d{3}.{0,40}\[0\.\d{3}, 0\.\d{3}\]", text), "the worst ACR, with an interval"


def test_a_folder_without_logs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", str(tmp_path)]) == 2
    assert "has no ledgers and logs" in capsys.readouterr().err


def test_networks_of_a_study_are_entries_and_changed_rows_are_not(tmp_path: Path) -> None:
    study = Path(__file__).parents[2] / "benchmarks" / "paper" / "table6"
    shutil.copytree(study, tmp_path / "first")
    shutil.copytree(study, tmp_path / "second")  # the same rows, which are shown once
    entries, refused = study_entries(tmp_path)
    assert (len(entries), refused) == (len(list((study / "rows").iterdir())), {})
    assert all(entry.path.is_file() for entry in entries)
    text = board_html(entries, refused, title="t", out=tmp_path / "board.html")
    assert text.count("the radius of every correct image re-derived") == len(entries)
    assert f"{entries[0].network}</td>" in text
    changed = entries[0].path
    changed.write_bytes(changed.read_bytes()[:-1])
    entries, refused = study_entries(tmp_path / "first")
    assert entries == []
    assert "was changed" in refused[tmp_path / "first" / "study.json"]
