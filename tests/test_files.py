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
    with pytest.raises(ZeroDivisionError), files.new_folder(target) as partial:
        (partial / "a").write_text(str(1 // 0))
    assert (target / "a").read_text() == "1"
    assert list(tmp_path.iterdir()) == [target]


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
