"""From a certified run to a folder that answers on another machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from smoothheads.certify.engines import openvino
from smoothheads.cli import main
from smoothheads.data import load_test, named

FEW = ["--n0", "20", "--n", "100", "--block", "20"]
RADIUS = ["--budget", "radius", "--n", "100", "--block", "20"]


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    """A copy that a test may certify and delete."""
    return shutil.copytree(trained_run, tmp_path / "run")


@pytest.fixture
def digit(tmp_path: Path) -> str:
    pixels = load_test(named("digits")).image(1)[0].astype(np.int64)
    Image.fromarray((pixels * 255 // 16).astype(np.uint8)).save(tmp_path / "digit.png")
    return str(tmp_path / "digit.png")


def certify(run: Path, *options: str) -> None:
    assert main(["certify", str(run), *FEW, "--first", "3", *options]) == 0


def export(run: Path, tmp_path: Path) -> Path:
    """Exported, moved elsewhere, and nothing else left."""
    assert main(["export", str(run / "ledger"), "--out", str(tmp_path / "shipped")]) == 0
    shutil.rmtree(run)
    return Path(shutil.move(tmp_path / "shipped", tmp_path / "elsewhere"))


def predict(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["predict", *arguments, "--json", "--seed", "0"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_the_export_answers_as_the_run_did(
    run: Path, tmp_path: Path, digit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--sigma", "0.25", "--aggregation", "head-2", "--noise", "gaussian"]
    certify(run, *settings)
    before = [predict(capsys, str(run), digit, *FEW, *settings, *more) for more in ([], ["--radius"])]
    out = str(export(run, tmp_path))
    assert [predict(capsys, out, digit, *more) for more in ([], ["--radius"])] == before
    assert predict(capsys, out, digit, "--n", "60", "--alpha", "0.01", "--sigma", "0.25")[0]["n"] == 60


@pytest.mark.openvino
def test_the_quantised_network_that_was_certified_answers(
    run: Path,
    tmp_path: Path,
    digit: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(openvino, "CALIBRATION", 10)
    engine = ["--engine", "openvino", "--precision", "int8"]
    certify(run, *engine)
    (model,) = run.glob("engines/*/*/model.bin")
    certified = model.read_bytes()
    before = predict(capsys, str(run), digit, "--radius", *FEW, *engine)
    out = export(run, tmp_path)
    assert (out / "engine" / "model.bin").read_bytes() == certified
    assert predict(capsys, str(out), digit, "--radius") == before
    message = refused(capsys, "predict", str(out), digit, "--precision", "float32")
    assert 'the function that was certified: precision = "float32" instead of "int8"' in message
    (out / "engine" / "model.bin").write_bytes(certified[:-1] + bytes([certified[-1] ^ 1]))
    assert "engine/model.bin has sha256" in refused(capsys, "predict", str(out), digit)


def test_what_would_be_another_function_is_refused(
    run: Path, tmp_path: Path, digit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    certify(run)
    out = str(export(run, tmp_path))
    message = refused(capsys, "predict", out, digit, "--sigma", "0.3", "--block", "10")
    assert "that was certified: block = 10 instead of 20; sigma = 0.3 instead of 0.5. The cert" in message
    (tmp_path / "elsewhere" / "export.json").unlink()  # and what is left is not taken for a checkpoint
    assert "export.json has sha256 no file" in refused(capsys, "predict", out, digit)


def test_the_folder_of_the_run_will_do_and_the_summary_is_json(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certify(run)
    capsys.readouterr()
    assert main(["export", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["out"] == str(run / "export")
    assert found["summary"]["images"] == 3
    assert main(["report", str(run / "export" / "ledger"), "--json"]) == 0
    assert "a new or empty folder" in refused(capsys, "export", str(run))


def test_a_budget_that_gives_up_early_still_says_how_the_copies_voted(
    run: Path, digit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hopeless = "smoothheads.certify.budgets.clopper_pearson_upper"
    monkeypatch.setattr(hopeless, lambda *_: 0.0)
    (answer,) = predict(capsys, str(run), digit, *RADIUS, "--radius")
    assert (answer["class"], answer["n"]) == ("abstain", 100)
    assert 0 < answer["share"] <= 1


def test_a_mistaken_path_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["export", "--out", str(tmp_path / "out")])
    assert end.value.code == 2
    assert "LEDGER" in capsys.readouterr().err
    assert "nowhere" in refused(capsys, "export", str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    assert "There is no file" in refused(capsys, "export", str(tmp_path / "empty"))


def test_a_ledger_that_lies_alone_asks_for_its_checkpoint(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certify(run)
    alone = str(shutil.move(run / "ledger", tmp_path / "alone"))
    out = ["--out", str(tmp_path / "out")]
    assert "has no checkpoint of this ledger: name it with --checkpoint" in refused(
        capsys, "export", alone, *out
    )
    assert main(["export", alone, *out, "--checkpoint", str(run)]) == 0
