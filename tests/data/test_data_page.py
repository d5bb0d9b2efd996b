"""The code of docs/data.md runs as it stands there, one block after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from smoothheads.data import load, named

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(code, names)
    assert names["data"].info.class_names == ("cat", "dog")
    splits = load(named("npz", root="mine.npz"))
    assert (len(splits.test), splits.test.info.class_names) == (20, ("cat", "dog"))


def test_page_names_every_data_set() -> None:
    from smoothheads.data import DATASETS

    text = PAGE.read_text()
    ours = [name for name, kind in DATASETS.items() if kind.__module__.startswith("smoothheads.")]
    assert [name for name in ours if f"`{name}`" not in text] == ["in-memory"]
