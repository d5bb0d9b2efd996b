from __future__ import annotations

import json
from pathlib import Path

import pytest

import smoothheads as sh
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
    assert list(found) == [name for name in sh.recipes() if "cifar10" in name and "some" in name]


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


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("methods", "cat-rs        Jeong, Kim and Shin 2023: effort in proportion"),
        ("architectures", "resnet50   cut layer3, made for 224x224 pixels, 3 channels"),
        ("smoothmix", "step_size"),
    ],
)
def test_other_lists(what: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", what]) == 0
    assert expected in capsys.readouterr().out


def test_a_ledger_is_told_apart_from_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).parents[1] / "fixtures" / "v1" / "run" / "ledger-fixed"
    assert main(["info", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"] > 0
    assert facts["manifest"]["certify"]["sigma"] == 0.5
