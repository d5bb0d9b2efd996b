"""The Dockerfile as far as it can be checked without an engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import tyro

from smoothheads.cli.serve import ServeCommand
from smoothheads.errors import ConfigError
from smoothheads.serve.server import check_token

ROOT = Path(__file__).parents[2]
LINES = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text()).splitlines()
STEPS = [line.split(" ", 1) for line in LINES if line and not line.startswith("#")]


def steps(name: str) -> list[str]:
    return [rest for step, rest in STEPS if step == name]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    ignore = (ROOT / ".dockerignore").read_text().split()
    for line in steps("COPY"):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists()
            assert any(fnmatch(name, kept[1:]) for kept in ignore if kept.startswith("!"))


def test_it_runs_without_rights_and_with_a_token() -> None:
    assert steps("USER") == ["smoothheads"]
    names = [name for name, _ in STEPS]
    assert names.index("USER") < names.index("ENTRYPOINT")
    entry, command = json.loads(steps("ENTRYPOINT")[0]), json.loads(steps("CMD")[-1])
    assert entry == ["smoothheads", "serve"]
    args = tyro.cli(ServeCommand, args=command)
    assert str(args.port) in steps("EXPOSE")
    with pytest.raises(ConfigError, match="token"):
        check_token(args.host, args.token)


def test_extras_and_pins_exist() -> None:
    extras = re.search(r"\.\[([\w,]+)\]", steps("RUN")[-1])
    assert extras
    declared = (ROOT / "pyproject.toml").read_text()
    for extra in extras[1].split(","):
        assert f"\n{extra} = [" in declared


def in_the_guide(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", (ROOT / "docs" / "serving.md").read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_unit_serves_and_is_one(tmp_path: Path) -> None:
    unit = in_the_guide("ini")
    command = re.search(r"ExecStart=(\S+) serve (.*)", unit)
    assert command
    assert tyro.cli(ServeCommand, args=command[2].split()).host == "127.0.0.1"
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd here")
    path = tmp_path / "smoothheads.service"
    path.write_text(unit.replace(command[1], sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], check=False, capture_output=True, text=True
    )
    assert str(path.name) not in done.stderr, done.stderr


def test_compose_runs_what_the_dockerfile_makes() -> None:
    text = in_the_guide("yaml")
    assert f"127.0.0.1:8000:{steps('EXPOSE')[0]}" in text
    assert f"./runs:{steps('VOLUME')[0]}:ro" in text
    assert "${SMOOTHHEADS_TOKEN:?" in text  # none: it does not start
