"""The Dockerfile as far as it can be checked without an engine."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
import tyro

from smoothheads.cli.serve import Serve
from smoothheads.errors import ConfigError
from smoothheads.serve.server import _check_token

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
    args = tyro.cli(Serve, args=command)
    assert str(args.port) in steps("EXPOSE")
    with pytest.raises(ConfigError, match="token"):
        _check_token(args.host, args.token)


def test_extras_and_pins_exist() -> None:
    extras = re.search(r"\.\[([\w,]+)\]", steps("RUN")[-1])
    assert extras
    declared = (ROOT / "pyproject.toml").read_text()
    for extra in extras[1].split(","):
        assert f"\n{extra} = [" in declared
