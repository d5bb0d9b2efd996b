from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from smoothheads.data.reading import check_labels, damaged, existing, only_place, read_files
from smoothheads.errors import DataError

from .builders import write_files, write_tar

FILES = {"a": b"first", "b": b"second", "c": b""}


@pytest.fixture(params=["folder", "archive"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "folder":
        write_files(tmp_path, FILES)
        return tmp_path
    write_tar(tmp_path / "x.tar.gz", "some/where", FILES)
    return tmp_path / "x.tar.gz"


def test_files_come_in_the_order_asked_for(source: Path) -> None:
    assert read_files(source, ["b", "c", "a"]) == [b"second", b"", b"first"]


def test_a_missing_file_is_named(source: Path) -> None:
    with pytest.raises(DataError, match="no file d;"):
        read_files(source, ["a", "d"])


def test_plain_tar_files_are_read(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(tmp_path / "a", "a")
    assert read_files(tmp_path / "x.tar", ["a"]) == [b"first"]


@pytest.mark.parametrize("data", [b"", b"no archive at all", bytes(1000)])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(data)
    with pytest.raises(DataError):
        read_files(tmp_path / "x.tar.gz", ["a"])


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    write_files(tmp_path, FILES)
    monkeypatch.setattr(Path, "read_bytes", deny)
    with pytest.raises(DataError, match="Permission denied"):
        read_files(tmp_path, ["a"])


def marked(folder: Path) -> bool:
    return (folder / "mark").exists()


def mark(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mark").touch()


def test_the_root_comes_before_what_lies_below(tmp_path: Path) -> None:
    mark(tmp_path, tmp_path / "a", tmp_path / "b")
    assert only_place(tmp_path, "x", marked) == tmp_path


def test_one_level_below_and_no_deeper(tmp_path: Path) -> None:
    assert only_place(tmp_path, "x", marked) is None
    mark(tmp_path / "a" / "b")
    assert only_place(tmp_path, "x", marked) is None
    mark(tmp_path / "c")
    assert only_place(tmp_path, "x", marked) == tmp_path / "c"
    mark(tmp_path / "a")
    with pytest.raises(DataError, match=r"\(a, c\)"):
        only_place(tmp_path, "x", marked)


def test_a_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert existing("~", "x") == tmp_path


def test_messages_say_what_came() -> None:
    assert "EOFError" in str(damaged("here", "file", EOFError()))
    check_labels(np.array([0, 2]), 3, "here")
    with pytest.raises(DataError, match=r"position 1 of here is 3, and 2 in all are outside 0\.\.2"):
        check_labels(np.array([0, 3, -1]), 3, "here")
