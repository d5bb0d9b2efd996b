from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smoothheads.data import from_arrays
from smoothheads.data.base import damaged, existing, only_place
from smoothheads.errors import DataError


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
    with pytest.raises(DataError, match=r"position 1 of here is 3, and 2 in all are outside 0\.\.2"):
        from_arrays(np.zeros((3, 8, 8), np.uint8), [0, 3, -1], classes=3, max_value=1, name="here")
