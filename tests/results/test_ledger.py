"""Whatever happens to the process, the ledger holds whole rows of one run."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from smoothheads.errors import LedgerError, StorageError
from smoothheads.results.ledger import Ledger, load, save
from smoothheads.results.manifest import Manifest
from smoothheads.results.row import HEADER
from smoothheads.types import Certified

Rows = Callable[..., Certified]
Run = Callable[..., Path]


def test_a_run_is_written_and_read_back(run: Run, row: Rows, manifest: Manifest) -> None:
    folder = run()
    contents = load(folder)
    assert contents.manifest == manifest
    assert [r.index for r in contents.rows] == list(range(0, 60, 5))
    assert contents.rows[3].certificate.k == row(15).certificate.k
    text = (folder / "ledger.tsv").read_text()
    header, *lines = text.splitlines()
    assert header == HEADER
    assert [line.rsplit("\t", 2)[0] for line in lines] == contents.lines


def test_resume_goes_on_where_it_stopped(tmp_path: Path, manifest: Manifest, row: Rows) -> None:
    with Ledger.open(tmp_path, manifest) as ledger:
        assert ledger.done == set()
        ledger.append(row(0))
    with Ledger.open(tmp_path, replace(manifest, created="later")) as ledger:
        assert ledger.done == {0}
        assert len(ledger) == 1
        ledger.append(row(5))
    assert json.loads((tmp_path / "manifest.json").read_text())["created"] == manifest.created
    assert len(load(tmp_path).rows) == 2


def test_fresh_starts_again(run: Run, manifest: Manifest) -> None:
    folder = run()
    with Ledger.open(folder, replace(manifest, weights="f" * 64), fresh=True) as ledger:
        assert ledger.done == set()
    assert (folder / "ledger.tsv").read_text() == HEADER + "\n"
    assert load(folder).manifest.weights == "f" * 64


def test_other_settings_are_refused_by_name(run: Run, manifest: Manifest) -> None:
    folder = run()
    before = (folder / "ledger.tsv").read_bytes()
    changed = replace(manifest, certify=replace(manifest.certify, sigma=0.25), aggregations=("ensemble",))
    with (
        pytest.raises(LedgerError, match=r"aggregations = .*certify.sigma = 0.25 instead of 0.5"),
        Ledger.open(folder, changed),
    ):
        pass
    assert (folder / "ledger.tsv").read_bytes() == before


def test_one_row_under_other_rules_is_not_taken_for_torn(
    tmp_path: Path, manifest: Manifest, row: Rows
) -> None:
    with Ledger.open(tmp_path, manifest) as ledger:
        ledger.append(row(0))
    with (
        pytest.raises(LedgerError, match="aggregations"),
        Ledger.open(tmp_path, replace(manifest, aggregations=("ensemble",))),
    ):
        pass
    assert len(load(tmp_path).rows) == 1


def test_settings_may_change_before_the_first_row(tmp_path: Path, manifest: Manifest) -> None:
    with Ledger.open(tmp_path, manifest):
        pass
    with Ledger.open(tmp_path, replace(manifest, weights="f" * 64)):
        pass
    assert load(tmp_path).manifest.weights == "f" * 64


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_dropped(run: Run, manifest: Manifest, row: Rows, cut: int) -> None:
    folder = run()
    path = folder / "ledger.tsv"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert len(load(folder).rows) == 11
    with Ledger.open(folder, manifest) as ledger:
        assert 55 not in ledger.done
        ledger.append(row(55))
    assert path.read_bytes() == whole


def test_every_cut_heals(tmp_path: Path, manifest: Manifest, row: Rows) -> None:
    path = tmp_path / "ledger.tsv"
    with Ledger.open(tmp_path, manifest) as ledger:
        ledger.append(row(0))
        ledger.append(row(5))
    whole = path.read_bytes()
    near = {i + d for i, byte in enumerate(whole) if byte == 10 for d in (-1, 0, 1)}
    for cut in sorted(near | set(range(0, len(whole), 11))):
        path.write_bytes(whole[:cut])
        with Ledger.open(tmp_path, manifest) as ledger:
            for index in (0, 5):
                if index not in ledger.done:
                    ledger.append(row(index))
        assert path.read_bytes() == whole


def test_an_unreadable_last_line_is_dropped_and_an_earlier_one_refused(run: Run, manifest: Manifest) -> None:
    folder = run()
    path = folder / "ledger.tsv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1][:20], ""]))
    with Ledger.open(folder, manifest) as ledger:
        assert len(ledger.done) == 11
    path.write_text("\n".join([*lines[:3], "\x00" * 30, *lines[4:], ""]))
    with pytest.raises(LedgerError, match="Line 4"), Ledger.open(folder, manifest):
        pass


def test_another_file_is_never_overwritten(tmp_path: Path, manifest: Manifest) -> None:
    for text in ("idx\tlabel\n0\t1\n", "notes"):
        (tmp_path / "ledger.tsv").write_text(text)
        with pytest.raises(StorageError, match="new or empty folder"), Ledger.open(tmp_path, manifest):
            pass
        assert (tmp_path / "ledger.tsv").read_text() == text


def test_duplicates_and_wrong_order_are_refused(run: Run, manifest: Manifest, row: Rows) -> None:
    folder = run()
    lines = load(folder).lines
    save(folder, manifest, [*lines, lines[2]])  # with checksums that are right
    with pytest.raises(LedgerError, match=r"twice \(\[10\]\)"), Ledger.open(folder, manifest):
        pass
    save(folder, manifest, [lines[1], lines[0]])
    with pytest.raises(LedgerError, match="not in its manifest's order"), Ledger.open(folder, manifest):
        pass


def test_appending_checks_the_row(tmp_path: Path, manifest: Manifest, row: Rows) -> None:
    with Ledger.open(tmp_path, manifest) as ledger:
        with pytest.raises(LedgerError, match="Image 5 is out of order: image 0 is next"):
            ledger.append(row(5))
        ledger.append(row(0))
        with pytest.raises(LedgerError, match="Image 0 is in the ledger already"):
            ledger.append(row(0))
    for wrong in ({"aggregations": ("ensemble",)}, {"classes": 3}):
        with (
            Ledger.open(tmp_path, replace(manifest, **wrong), fresh=True) as ledger,
            pytest.raises(LedgerError, match="Image 0 has votes of"),
        ):
            ledger.append(row(0))


def test_a_complete_ledger_takes_no_more(run: Run, manifest: Manifest, row: Rows) -> None:
    with Ledger.open(run(), manifest) as ledger, pytest.raises(LedgerError, match="the ledger is complete"):
        ledger.append(row(60))


def test_a_partial_write_is_taken_back(tmp_path: Path, manifest: Manifest, row: Rows) -> None:
    """A limit on the file size is a disk that fills in the middle of a line."""
    path = tmp_path / "ledger.tsv"
    with Ledger.open(tmp_path, manifest) as ledger:
        ledger.append(row(0))
        before = path.read_bytes()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
            with pytest.raises(StorageError, match="Cannot write"):
                ledger.append(row(5))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == before
        assert ledger.done == {0}
        ledger.append(row(5))
    assert len(load(tmp_path).rows) == 2


def test_a_full_disk_says_so(
    tmp_path: Path, manifest: Manifest, row: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Ledger.open(tmp_path, manifest) as ledger:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="free some space"):
            ledger.append(row(0))
        monkeypatch.undo()
        ledger.append(row(0))
    assert [r.index for r in load(tmp_path).rows] == [0]


def test_the_folder_is_held_by_one(tmp_path: Path, manifest: Manifest) -> None:
    with (
        Ledger.open(tmp_path, manifest),
        pytest.raises(StorageError, match=rf"in use by process {os.getpid()} on \S+; wait"),
        Ledger.open(tmp_path, manifest),
    ):
        pass
    with Ledger.open(tmp_path, manifest):
        pass


_WRITER = """
import json, sys, time
from pathlib import Path
from smoothheads.results.ledger import Ledger
from smoothheads.results.manifest import from_json
from smoothheads.results.row import from_line
folder, manifest, lines = Path(sys.argv[1]), *map(json.loads, sys.argv[2:4])
manifest = from_json(manifest, "here")
with Ledger.open(folder, manifest) as ledger:
    for line in lines:
        row = from_line(line, manifest.aggregations, manifest.classes)
        if row.index not in ledger.done:
            ledger.append(row)
            print(row.index, flush=True)
            time.sleep(float(sys.argv[4]))
"""


def _write(folder: Path, manifest: Manifest, lines: list[str], pause: float) -> subprocess.Popen[str]:
    words = [str(folder), json.dumps(manifest.to_json()), json.dumps(lines), str(pause)]
    return subprocess.Popen([sys.executable, "-c", _WRITER, *words], stdout=subprocess.PIPE, text=True)


def test_kill_and_rerun_gives_the_same_bytes(tmp_path: Path, run: Run, manifest: Manifest) -> None:
    lines = load(run()).lines
    with _write(tmp_path / "whole", manifest, lines, 0) as process:
        assert process.wait() == 0
    folder = tmp_path / "killed"
    with _write(folder, manifest, lines, 0.5) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with (
            pytest.raises(StorageError, match=rf"in use by process {process.pid} on"),
            Ledger.open(folder, manifest),
        ):
            pass
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert 1 <= len(load(folder).rows) < 12
    with _write(folder, manifest, lines, 0) as process:
        assert process.wait() == 0
    assert (folder / "ledger.tsv").read_bytes() == (tmp_path / "whole" / "ledger.tsv").read_bytes()


@pytest.mark.parametrize("text", [None, "", "[]"])
def test_rows_without_their_manifest_are_refused(run: Run, manifest: Manifest, text: str | None) -> None:
    path = run() / "manifest.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(LedgerError, match=r"manifest.json"):
        load(path.parent)
    with pytest.raises(StorageError, match="new or empty folder"), Ledger.open(path.parent, manifest):
        pass
