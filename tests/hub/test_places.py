"""A run's folder, an export and an address are taken wherever a checkpoint or a ledger is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from tests.example import example_export, example_run

import smoothheads as sh
from smoothheads.cli import COMMANDS, main
from smoothheads.runs.export import push

from .conftest import Hub

ATTACK = ["--steps", "2", "--draws", "2", "--n", "20", "--radii", "1.0", "--halvings", "1", "--first", "2"]

TAKE: dict[str, Callable[[str], list[str]]] = {
    "certify": lambda at: [
        "certify",
        at,
        "--n",
        "20",
        "--n0",
        "5",
        "--block",
        "5",
        "--first",
        "1",
        "-o",
        "out",
    ],
    "export": lambda at: ["export", at, "--out", "out"],
    "export --checkpoint": lambda at: ["export", at, "--checkpoint", at, "--out", "out"],
    "export --format onnx": lambda at: ["export", at, "--format", "onnx", "--out", "out.onnx"],
    "predict": lambda at: ["predict", at, "image.png", "--n", "20", "--alpha", "0.1"],
    "push": lambda at: ["push", at, "user/again"],
    "report": lambda at: ["report", at, "--out", "out"],
    "compare": lambda at: ["compare", at, at],
    "audit": lambda at: ["audit", at],
    "recertify": lambda at: ["recertify", at, "--alpha", "0.01", "--out", "out"],
    "threats": lambda at: ["threats", at, "--linf"],
    "ensemble": lambda at: ["ensemble", at, at, "--out", "out"],
    "attack": lambda at: ["attack", at, *ATTACK, "--out", "out"],
    "attack --ledger": lambda at: ["attack", at, "--ledger", at, *ATTACK, "--out", "out"],
    "info": lambda at: ["info", at],
    "diversity": lambda at: ["diversity", at, at, "--index-samples", "20", "--samples", "10", "--first", "1"],
    "train --init": lambda at: [
        *(
            "train",
            str(example_run() / "config.json"),
            "--init",
            at,
            "--data.subset.first",
            "60",
            "--train.epochs",
            "1",
        ),
        *("--out", "out"),
    ],
}


@pytest.fixture(params=["run", "address"])
def place(request: pytest.FixtureRequest, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Image.new("L", (8, 8)).save("image.png")
    if request.param == "address":
        return push(example_export(), "user/some")
    shutil.copytree(example_export(), "there")
    for path in Path("there").iterdir():
        if path.is_file():
            path.unlink()  # what makes it an export
    return "there"


@pytest.mark.parametrize("command", TAKE)
def test_a_command_takes_it(place: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(TAKE[command](place)) == 0, capsys.readouterr().err


def test_python_takes_it(place: str) -> None:
    assert sh.load_checkpoint(place).manifest == sh.load_checkpoint(example_export() / "checkpoint").manifest
    assert sh.read_log(place).acr == sh.read_log(example_export() / "ledger").acr
    assert sh.from_pretrained(place).info.classes == 10


def test_shards_are_named_by_the_run_that_they_lie_in(tmp_path: Path) -> None:
    assert main(["merge", str(example_run()), "--out", str(tmp_path / "whole")]) == 0
    parts = [str(example_run() / f"ledger-{i}-of-2") for i in range(2)]
    assert main(["merge", *parts, "--out", str(tmp_path / "named")]) == 0
    whole, named = ((tmp_path / name / "ledger.tsv").read_bytes() for name in ("whole", "named"))
    assert whole == named


def test_no_command_is_forgotten() -> None:
    """`serve` is in the tests of the page, `bench` in its own; the others take no such place."""
    others = {"board", "demo", "zoo", "serve", "merge", "import", "study", "paper"}
    assert {name.partition(" ")[0] for name in TAKE} | others == COMMANDS.keys()
