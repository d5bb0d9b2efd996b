from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoothheads import files
from smoothheads.errors import StorageError


def test_write_atomic_leaves_nothing_but_the_file(tmp_path: Path) -> None:
    files.write_atomic(tmp_path / "deep" / "a.txt", "one")
    files.write_atomic(tmp_path / "deep" / "a.txt", b"two")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.txt"]
    assert (tmp_path / "deep" / "a.txt").read_text() == "two"


def test_a_failed_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    files.write_atomic(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"No space left on device; free some space"):
        files.write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_new_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"
    with files.new_folder(target) as partial:
        (partial / "a").write_text("1")
        assert not target.exists()
    assert (target / "a").read_text() == "1"
    with pytest.raises(ZeroDivisionError), files.new_folder(tmp_path / "other") as partial:
        (partial / "a").write_text(str(1 // 0))
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(StorageError, match="one with a; choose"), files.new_folder(target):
        pass


def test_what_a_killed_process_left_is_cleared_away_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f".checkpoint.{ended.pid}.partial"
    kept = [f".checkpoint.{os.getppid()}.partial", f".other.{ended.pid}.part", ".mine.partial", "notes"]
    for path in (left, *(tmp_path / name for name in kept)):
        path.mkdir()
        (path / "a").write_text("1")
    with files.exclusive(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, files.LOCK])
    left.mkdir()
    other = tmp_path / f".export.{ended.pid}.partial"
    other.mkdir()
    with files.new_folder(tmp_path / "checkpoint") as partial:
        (partial / "a").write_text("1")
    assert not left.exists()
    assert other.exists()


def test_a_full_disk_of_a_library_with_errors_of_its_own(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match=r"No space left on device; free some space"),
        files.storage(tmp_path),
    ):
        raise ValueError("Error while serializing: I/O error: No space left on device (os error 28)")
    with pytest.raises(ValueError, match="other"), files.storage(tmp_path):
        raise ValueError("other")


def test_new_folder_may_have_folders_in_it(tmp_path: Path) -> None:
    with files.new_folder(tmp_path / "export") as partial:
        (partial / "deep").mkdir()
        (partial / "deep" / "a").write_text("1")
    assert (tmp_path / "export" / "deep" / "a").read_text() == "1"


HOLD = """
import sys; from pathlib import Path; from smoothheads import errors, files
try:
    with files.exclusive(Path(sys.argv[1])): print("held")
except errors.StorageError as error: print(error)
"""


def test_a_second_process_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    def second() -> str:
        command = [sys.executable, "-c", HOLD, str(tmp_path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with files.exclusive(tmp_path):
        assert f"process {os.getpid()} on" in second()
    assert second().strip() == "held"
