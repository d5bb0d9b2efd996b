from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smoothheads import files
from smoothheads.errors import HeldError, StorageError


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
    with pytest.raises(StorageError, match=r"is not empty \(it holds a\)"), files.new_folder(target):
        pass


KILLED = """
import os, sys; from pathlib import Path; from smoothheads import files
with files.new_folder(Path(sys.argv[1])) as partial:
    (partial / "a").write_text("1")
    os.kill(os.getpid(), 9)
"""


def killed_while_writing(path: Path) -> Path:
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    (partial,) = path.parent.glob(f".{path.name}.*.partial")
    return partial


def test_exclusive_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    partial = killed_while_writing(tmp_path / "checkpoint")
    machine, _, token = partial.name.split(".")[2].split("-")
    mine = f".checkpoint.{machine}-{os.getppid()}-{token}.partial"
    elsewhere = partial.name.replace(machine, "00000000")  # of another machine on the same disk
    saved = [mine, elsewhere, ".mine.partial", "notes"]
    for name in saved:
        (tmp_path / name).mkdir()
    with files.exclusive(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*saved, files.LOCK])


def test_new_folder_removes_only_what_was_left_of_its_own_name(tmp_path: Path) -> None:
    partial, other = killed_while_writing(tmp_path / "checkpoint"), killed_while_writing(tmp_path / "export")
    with files.new_folder(tmp_path / "checkpoint") as folder:
        (folder / "a").write_text("1")
    assert not partial.exists()
    assert other.exists()


def test_new_folder_replaces_an_empty_one_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between two files would leave half a folder, so that there must be one rename."""
    target = tmp_path / "export"
    renames: list[Path] = []
    target.mkdir()
    replace = os.replace

    def noted(old: Path, new: Path) -> None:
        renames.append(new)
        replace(old, new)

    monkeypatch.setattr(os, "replace", noted)
    with files.new_folder(target) as partial:
        (partial / "a").write_text("1")
        (partial / "b").write_text("2")
    assert renames == [target]
    assert sorted(path.name for path in target.iterdir()) == ["a", "b"]


def test_new_folder_fills_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with files.new_folder(Path()) as partial:
        (partial / "a").write_text("1")
    assert Path("a").read_text() == "1"


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


def test_two_processes_of_one_number_on_a_shared_disk_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in two containers: host name, namespace and process number are equal, and no lock is seen."""
    monkeypatch.setattr(files, "_machine", lambda: "00000000")
    with pytest.raises(StorageError, match="is not empty"), files.new_folder(tmp_path / "out") as first:  # noqa: PT012
        (first / "a").write_text("1")
        with monkeypatch.context() as other:
            other.setattr(files, "_token", lambda _: "ffffffff")
            with files.new_folder(tmp_path / "out") as second:
                (second / "b").write_text("2")
        assert (first / "a").read_text() == "1"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["b"]


def test_check_held_notices_that_another_process_took_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that does not share locks gives them to both."""
    with files.exclusive(tmp_path):
        files.check_held(tmp_path)
        with monkeypatch.context() as other:
            other.setattr(files, "_token", lambda _: "ffffffff")
            taken = files._own_name()
            (tmp_path / files.LOCK).write_text(taken)
        with pytest.raises(HeldError, match=f"was taken over by {re.escape(taken)}"):
            files.check_held(tmp_path)
    assert files.holder(tmp_path) == taken  # whoever has it now keeps it
