from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smoothheads import checkpoint
from smoothheads.cli import main
from smoothheads.cli.train import COMMON

FEW = ["--train.epochs", "1", "--data.subset.first", "24"]


def test_help_fits_a_screen_and_names_only_what_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "digits-some", "--help"])
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 30
    assert "--help-all" in short
    with pytest.raises(SystemExit):
        main(["train", "digits-some", "--help-all"])
    full = capsys.readouterr().out
    for name in COMMON.keys() - {"--data.name NAME"}:  # which is taken before the others
        assert re.search(rf"{re.escape(name.removeprefix('-o, ').split()[0])}\b", full), name


def test_an_ensemble_is_trained_apart_and_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    arguments = ["train", "digits", "--structure", "dnn2", "--sigma", "0.3", *FEW, "--out", str(out)]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(out / "checkpoint")
    assert "network 2 of 2" in said.err
    assert f"next: smoothheads certify {out}" in said.err
    joined = checkpoint.load(out / "checkpoint")
    assert (len(joined.model.heads), joined.config.model.cut, joined.config.train.sigma) == (2, "input", 0.3)
    seeds = [json.loads((out / f"member-{k}" / "config.json").read_text())["train"]["seed"] for k in (1, 2)]
    assert seeds == [0, 1]
    assert main(arguments) == 2
    assert main([*arguments, "--resume"]) == 0


def test_method_and_sigma_are_put_into_an_earlier_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tmp_path / "first"
    assert main(["train", "digits-single", *FEW, "--out", str(first)]) == 0
    capsys.readouterr()
    second = tmp_path / "second"
    again = [str(first / "config.json"), "--method", "stability", "--sigma", "0.4", "--out", str(second)]
    assert main(["train", *again, "--json"]) == 0
    assert "validation" in json.loads(capsys.readouterr().out)["metrics"]
    config = json.loads((second / "config.json").read_text())
    assert (config["objective"]["method"]["name"], config["train"]["sigma"]) == ("stability", 0.4)
    assert main(["train", str(first / "config.json"), "--structure", "some"]) == 2
    assert main(["train", "digits", "--sigma", "much"]) == 2
    assert "a number after --sigma, got 'much'" in capsys.readouterr().err
