"""The README's promises are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from smoothheads.cli import COMMANDS

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_example_runs_and_certifies(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    exec(compile(code, "README.md", "exec"), {})
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 20
    right = [row for row in rows if row[1] == row[2]]
    assert len(right) > 10
    assert all(float(row[3]) > 0 for row in right)


def test_every_command_in_the_readme_exists() -> None:
    used = {shlex.split(line)[1] for line in README.splitlines() if line.startswith("smoothheads ")}
    listed = set(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", README, re.MULTILINE))
    named = {name for cell in listed for name in re.findall(r"`(\w+)`", cell)}
    assert used | named <= set(COMMANDS)


def test_every_file_that_the_documents_link_to_exists() -> None:
    root = Path(__file__).parents[1]
    for document in (root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
