from __future__ import annotations

import json
from pathlib import Path

import pytest

from smoothheads.cli import main

SMALL = ["--data.subset.first", "80", "--train.epochs", "1", "--train.batch", "32", "--model.heads", "1"]
FEW = ["--n0", "20", "--n", "100", "--block", "20", "--first", "2"]


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("smoothheads: ")
    return message


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("members")
    for seed, sigma in (("1", "0.25"), ("2", "0.25"), ("3", "0.5")):
        options = ["--train.seed", seed, "--train.sigma", sigma, "--out", str(folder / seed)]
        assert main(["train", "digits-some", *SMALL, *options]) == 0
    return [str(folder / seed) for seed in "123"]


def test_join_certify_and_fine_tune(
    members: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "joined")
    capsys.readouterr()
    assert main(["ensemble", *members[:2], "-o", out, "--learn-weights", "--draws", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["checkpoint"], answer["heads"], len(answer["weights"])) == (out, 2, 2)
    for aggregation in ("vote", "weighted"):
        assert (
            main(["certify", out, *FEW, "--aggregation", aggregation, "--out", str(tmp_path / aggregation)])
            == 0
        )
    message = fails(capsys, "certify", out, *FEW, "--aggregation", "consensus-5")
    assert "no aggregation 'consensus-5': choose from ensemble, head-1, head-2, softmax, vote" in message
    run = str(tmp_path / "drt")
    options = [*SMALL[:-1], "2", "--model.cut", "input", "--method", "drt", "--init", out, "--out", run]
    assert main(["train", "digits-some", *options]) == 0
    assert json.loads((Path(run) / "config.json").read_text())["init"] == out


def test_mistakes_are_one_message(
    members: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "out")]
    assert "same sigma: member 1 has 0.25 and member 2 has 0.5" in fails(
        capsys, "ensemble", members[0], members[2], *out
    )
    assert "An ensemble has two members or more, not 1" in fails(capsys, "ensemble", members[0], *out)
    assert "There is no checkpoint in" in fails(capsys, "ensemble", members[0], str(tmp_path / "none"), *out)
    assert "heads = 5 instead of" in fails(
        capsys, "train", "digits-some", "--init", members[0], "--out", str(tmp_path / "run")
    )
    assert not (tmp_path / "run").exists()
