from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothheads.attack.outcome import AttackOutcome, save_attack
from smoothheads.certify.engines import openvino
from smoothheads.cli import main
from smoothheads.results.ledger import load, save
from smoothheads.results.manifest import from_json
from smoothheads.results.read import read_log
from smoothheads.results.row import recompute, to_line
from smoothheads.runs import attack as runs_attack
from smoothheads.types import Votes

TRAIN = ["--data.subset.first", "300", "--train.epochs", "5", "--train.batch", "64", "--model.heads", "2"]
CERTIFY = ["--n0", "20", "--n", "100", "--block", "50", "--first", "5"]
QUICK = ["--steps", "4", "--draws", "4", "--n", "50", "--radii", "1.0", "4.0", "--halvings", "1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("attack") / "run"
    assert main(["train", "digits-some", *TRAIN, "--out", str(out)]) == 0
    assert main(["certify", str(out), *CERTIFY]) == 0
    return out


def copied(trained: Path, folder: Path) -> Path:
    shutil.copytree(trained / "ledger", folder)
    return folder


def attack(trained: Path, ledger: Path, *more: str) -> int:
    return main(["attack", str(trained), "--ledger", str(ledger), *QUICK, *more])


def lying(ledger: Path) -> int:
    """Votes that nobody counted, with certificates that follow from them; how many claims there are."""
    log = read_log(ledger)
    assert log.manifest is not None
    n = 10**12
    manifest = replace(log.manifest, certify=log.manifest.certify.changed(n=n))
    rows = []
    for row in log.rows:
        counts = np.zeros_like(row.votes.counts)
        counts[:, int(np.argmax(row.selection.for_aggregation()))] = n
        claim = replace(row, votes=Votes(row.votes.aggregations, counts))
        rows.append(replace(claim, certificate=recompute(manifest.certify, claim, manifest.correction)))
    save(ledger, manifest, [to_line(row) for row in rows])
    return sum(not row.abstained for row in rows)


def test_a_sound_ledger_is_not_refuted(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, plot = copied(trained, tmp_path / "ledger"), tmp_path / "curves.svg"
    monkeypatch.chdir(tmp_path)
    assert (
        attack(trained, ledger, "--first", "1", "--out", str(tmp_path / "one"), "--plot", "attack.png") == 0
    )
    assert (tmp_path / "attack.png").read_bytes().startswith(b"\x89PNG")
    assert attack(trained, ledger, "--plot", str(plot)) == 0
    shown = capsys.readouterr()
    assert "certified (lower)" in shown.out
    assert "attacked (upper)" in shown.out
    assert "No certificate of" in shown.out
    assert "attack: done in" in shown.err
    assert "ledger, attacked" in plot.read_text()
    said = json.loads((ledger / "attack.json").read_text())
    assert (said["images"], said["violations"]) == (5, [])
    assert said["claims"] > 1
    assert said["radii"] == [0, 1, 4]
    assert all(low <= high for low, high in zip(said["certified"], said["attacked"], strict=True))
    assert said["facts"]["settings"]["steps"] == 4
    assert len(said["facts"]["ledger"]["manifest_sha256"]) == 64
    assert len((ledger / "attack.tsv").read_text().splitlines()) == 6


def test_a_false_ledger_is_refuted_with_exit_code_1(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = copied(trained, tmp_path / "ledger")
    assert lying(ledger) > 1
    assert attack(trained, ledger, "--json") == 1
    shown = capsys.readouterr()
    said = json.loads(shown.out)
    assert said["refuted"]
    assert len(said["violations"]) > 1
    assert said["p_value"] < 0.001
    assert said == json.loads((ledger / "attack.json").read_text()) | {"created": said["created"]}


def test_it_goes_on_where_it_stopped(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = copied(trained, tmp_path / "ledger")
    assert attack(trained, ledger, "--out", str(tmp_path / "whole")) == 0
    assert attack(trained, ledger, "--first", "2", "--out", str(tmp_path / "parts")) == 0
    saved: list[int] = []
    save = save_attack

    def noted(path: Path, outcome: AttackOutcome, facts: dict[str, Any], radii: Sequence[float]) -> None:
        saved.append(len(outcome.attacked))
        save(path, outcome, facts, radii)

    monkeypatch.setattr(runs_attack, "save_attack", noted)
    assert attack(trained, ledger, "--out", str(tmp_path / "parts.tsv")) == 0
    assert saved == [3, 4, 5, 5]
    assert (tmp_path / "parts.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    capsys.readouterr()
    assert attack(trained, ledger, "--first", "3", "--out", str(tmp_path / "parts")) == 2
    assert "2 of which are not selected now" in capsys.readouterr().err
    assert attack(trained, ledger, "--seed", "1", "--out", str(tmp_path / "parts")) == 2
    assert "settings.seed = 1 instead of 0" in capsys.readouterr().err
    assert (
        attack(trained, ledger, "--first", "1", "--seed", "1", "--fresh", "--out", str(tmp_path / "parts"))
        == 0
    )
    assert len((tmp_path / "parts.tsv").read_text().splitlines()) == 2


def test_what_does_not_belong_together_is_refused(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = copied(trained, tmp_path / "ledger")
    contents = load(ledger)
    for change, message in (
        ({"norm": "l1"}, "ledger has l1 radii; attack a ledger of l2 radii"),
        ({"weights": "0" * 64}, "certified with the weights 000000000000..."),
        ({"data": {"name": "digits", "fingerprint": "1" * 64}}, "certified on other images"),
    ):
        save(ledger, from_json(contents.manifest.to_json() | change, "here"), contents.lines)
        assert attack(trained, ledger) == 2
        assert message in capsys.readouterr().err
    foreign = tmp_path / "foreign.tsv"
    foreign.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0.1\n")
    assert attack(trained, foreign) == 2
    assert "is a log without a manifest" in capsys.readouterr().err
    assert attack(trained, tmp_path / "none") == 2
    assert attack(trained, trained / "ledger", "--first", "0") == 2
    assert "first >= 1, not 0" in capsys.readouterr().err


@pytest.mark.openvino
def test_the_judge_asks_the_network_that_was_certified(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(openvino, "CALIBRATION", 10)
    engine = ["--engine", "openvino", "--precision", "int8"]
    ledger = tmp_path / "ledger"
    assert main(["certify", str(trained), *CERTIFY, *engine, "--out", str(ledger)]) == 0
    monkeypatch.setattr("smoothheads.certify.engines.conversion.obtain", None)  # nothing is to be converted
    assert attack(trained, ledger) == 0
    assert "No certificate of" in capsys.readouterr().out
    (model,) = trained.glob("engines/*/openvino-int8-*/model.bin")
    model.write_bytes(b"another network")
    assert attack(trained, ledger, "--fresh") == 2
    assert "no converted network with sha256" in capsys.readouterr().err


def test_a_ledger_is_enough_where_it_lies_in_its_run(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attack", str(trained / "ledger"), *QUICK, "--out", str(tmp_path / "there")]) == 0
    alone = copied(trained, tmp_path / "alone")
    capsys.readouterr()
    assert main(["attack", str(alone), *QUICK]) == 2
    told = capsys.readouterr().err
    assert f"{alone} is a ledger without its network" in told
    assert f"smoothheads attack CHECKPOINT --ledger {alone}" in told
