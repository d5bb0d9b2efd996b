from __future__ import annotations

import json

import pytest

from smoothheads import recipes
from smoothheads.cli import main


def test_recipes_that_differ_in_sigma_alone_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("cifar10-resnet110-some-gaussian-0.25 0.50 1.00  ") for line in lines)
    assert len(lines) < 120
    assert max(map(len, lines)) < 130


def test_words_choose_among_the_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "recipes", "cifar10", "some", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [name for name in recipes.all_recipes() if "cifar10" in name and "some" in name]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["recipes", "nothing"], "recipes with 'nothing' in their names, got none"),
        (["digits-some", "digits-single"], "one recipe or folder, got also 'digits-single'"),
    ],
)
def test_what_is_not_there(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", *words]) == 2
    assert message in capsys.readouterr().err
