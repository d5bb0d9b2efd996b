from __future__ import annotations

import pickle
import re
import tomllib
from pathlib import Path

import pytest

from smoothheads.errors import (
    ConfigError,
    DataError,
    MissingExtraError,
    SettingError,
    SmoothheadsError,
    one_of,
)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("Choose another name."),
        SettingError("Choose a >= 1, not 0.", "train.a"),
        MissingExtraError("ray", "ray"),
    ],
)
def test_errors_cross_process_borders_unchanged(error: SmoothheadsError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert (str(back), vars(back)) == (str(error), vars(error))


def test_an_unknown_name_gets_the_nearest_or_all() -> None:
    assert "did you mean 'stage2'?" in str(one_of("cut", "stage-2", ["stage1", "stage2"]))
    assert "choose from a, b." in str(one_of("cut", "xyz", ["b", "a"]))
    many = one_of("recipe", "xyz", [f"recipe-{i:03}" for i in range(300)])
    assert str(many).endswith("choose one of 300, such as recipe-000, recipe-075, recipe-150, recipe-225.")


def test_other_peoples_text_cannot_steer_the_terminal_or_fill_it() -> None:
    error = DataError("A name of \x1b[2J\x07\ud800" + "x" * 10_000)
    assert "\\x1b[2J\\x07\\ud800xxx" in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 2100


def test_missing_packages_are_in_the_extra_that_is_named() -> None:
    root = Path(__file__).parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = "\n".join(path.read_text() for path in (root / "src").rglob("*.py"))
    named = re.findall(r'(?:MissingExtraError|import_extra)\("([\w-]+)", "(\w+)"\)', sources)
    assert len(named) > 4
    for package, extra in named:
        assert any(re.match(rf"{package}\b", each) for each in extras[extra]), (package, extra)
