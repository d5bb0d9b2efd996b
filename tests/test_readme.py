"""The README's promises are run."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from smoothheads.cli import COMMANDS, main

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_example_runs_and_certifies() -> None:
    scope: dict[str, Any] = {}
    exec(compile(_blocks("python")[0], "README.md", "exec"), scope)
    results = scope["results"]
    assert len(results) == 20
    assert results.correct.sum() > 10
    assert all(row.radius > 0 for row in results if row.correct)


def test_every_command_in_the_readme_exists() -> None:
    used = {shlex.split(line)[1] for line in README.splitlines() if line.startswith("smoothheads ")}
    listed = set(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", README, re.MULTILINE))
    named = {name for cell in listed for name in re.findall(r"`(\w+)`", cell)}
    assert used | named <= set(COMMANDS)


def test_the_commands_run_as_they_stand_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, in one folder, each in about the time beside it; then the Python beside."""
    monkeypatch.chdir(tmp_path)
    lines = [line for block in _blocks("") for line in block.splitlines() if line.startswith("smoothheads ")]
    assert len(lines) > 8
    for line in lines:
        command, _, comment = line.partition("#")
        started = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            code = main(shlex.split(command)[1:])
        assert code == (2 if "refused" in comment else 0), line
        said = re.match(r" (\d+) s: ", comment)
        assert said or "refused" in comment, f"no time beside: {line}"
        assert not said or time.process_time() - started < 5 * int(said[1]) + 10, line
    assert (tmp_path / "runs" / "report" / "report.html").is_file()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(_blocks("python")[1], "README.md", "exec"), {})
    assert re.fullmatch(r"-?\d \d\.\d+\n", out.getvalue())


def _blocks(language: str) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [text for kind, text in fences if kind == language]
