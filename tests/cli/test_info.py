from __future__ import annotations

import json
import re

import pytest
from tests.example import example_run

import smoothheads as sh
from smoothheads.cli import main


def test_recipes_are_listed_with_their_summaries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(sh.recipes.names())
    assert any(re.match(r"cifar10-resnet110-some  +Trains SOME, five heads", line) for line in lines)
    assert max(map(len, lines)) < 130


def test_a_recipe_shows_its_sources_options_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "cifar10-resnet110-some", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["options"] == {"sigma": 0.25, "method": "gaussian", "heads": 5}
    assert "the authors' code" in facts["source"]
    assert "MACER" in facts["methods"]["macer"]
    assert facts["model"]["heads"] == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["digits-sone"], "did you mean 'digits-some'"),
        (["digits-some", "digits-single"], "eave out 'digits-single'"),
    ],
)
def test_what_is_not_there(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("data", "cifar10  "),
        ("methods", "cat-rs        Jeong, Kim and Shin 2023: effort in proportion"),
        ("architectures", "resnet50   cut layer3, made for 224x224 pixels, 3 channels"),
        ("smoothmix", "step_size"),
    ],
)
def test_other_lists(what: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", what]) == 0
    assert expected in capsys.readouterr().out


def test_a_ledger_is_told_apart_from_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    folder = example_run() / "ledger-fixed"
    capsys.readouterr()
    assert main(["info", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"] > 0
    assert facts["manifest"]["certify"]["sigma"] == 0.25
