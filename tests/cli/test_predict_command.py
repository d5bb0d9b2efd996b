"""predict: many pictures, bad ones among them, files that go on, early stops."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from smoothheads import checkpoint
from smoothheads.certify.config import CertifyConfig
from smoothheads.cli import main
from smoothheads.data import describe, load_test, named
from smoothheads.errors import HeldError
from smoothheads.models import ModelConfig, build
from smoothheads.runs.models import Model, open_model
from smoothheads.runs.predict import AnswerFile, Question, function_facts
from smoothheads.training import RunConfig, TrainConfig

FEW = ["--n0", "20", "--n", "100", "--block", "20"]


def network(folder: Path, **data: Any) -> Path:
    """An untrained network for digits as a checkpoint."""
    config = RunConfig(
        data=named("digits", **data),
        model=ModelConfig(arch="resnet8", heads=2),
        train=TrainConfig(sigma=0.25),
    )
    info = describe(config.data)
    model = build(config.model, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)
    checkpoint.save(folder, model, config, info)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(network(tmp_path_factory.mktemp("predict") / "network"))


def digit(position: int) -> Image.Image:
    pixels = load_test(named("digits")).image(position)[0].astype(np.int64)
    return Image.fromarray((pixels * 255 // 16).astype(np.uint8))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    (folder / "below").mkdir(parents=True)
    for position in range(3):
        digit(position).save(folder / f"{position}.png")
    digit(3).save(folder / "below" / "3.png")
    return folder


def answers(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["predict", *arguments, *FEW, "--json"]) == code
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_folders_patterns_arrays_and_tables(
    trained: str, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [row["image"] for row in answers(capsys, trained, str(pictures))]
    assert names == [str(pictures / name) for name in ("0.png", "1.png", "2.png", "below/3.png")]
    assert len(answers(capsys, trained, str(pictures / "[01].png"))) == 2
    images = np.stack([load_test(named("digits")).image(i)[0] for i in range(3)])
    np.savez(pictures / "x.npz", images=images)
    encoded = [(pictures / f"{i}.png").read_bytes() for i in range(3)]
    pq.write_table(pa.table({"image": encoded}), pictures / "x.parquet")
    seed = ("--seed", "7")
    files = answers(capsys, trained, *(str(pictures / f"{i}.png") for i in range(3)), *seed)
    for table in ("x.npz", "x.parquet"):
        rows = answers(capsys, trained, str(pictures / table), *seed)
        assert [row["image"] for row in rows] == [f"{pictures / table}[{i}]" for i in range(3)]
        assert [row["share"] for row in rows] == [row["share"] for row in files]


def test_bad_pictures_do_not_stop_the_others(
    trained: str, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "1.png").write_bytes(b"no picture")
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(pictures / "2.png")
    rows = answers(capsys, trained, str(pictures), str(pictures / "none.png"), code=2)
    assert ["error" in row for row in rows] == [False, True, True, False, True]
    assert "not a complete image" in rows[1]["error"]
    assert "8-bit pixels" in rows[2]["error"]
    assert "no image file" in rows[4]["error"]
    np.savez(pictures / "nan.npz", images=np.full((2, 8, 8), np.nan))
    rows = answers(capsys, trained, str(pictures / "nan.npz"), code=2)
    assert [("NaN" in row["error"], row["image"]) for row in rows] == [
        (True, f"{pictures / 'nan.npz'}[{i}]") for i in range(2)
    ]


def test_no_picture_is_an_error(trained: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([], "No picture is named"),
        ([str(tmp_path)], "no pictures in"),
        (["*.none"], "no pictures in *.none"),
    ):
        assert main(["predict", trained, *arguments]) == 2
        assert message in capsys.readouterr().err


def test_radii_are_numbers_and_an_early_stop_needs_fewer_samples(
    trained: str, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = answers(capsys, trained, str(pictures / "0.png"), "--radius")
    assert isinstance(row["radius"], float)
    options = ["--radius-at-least", "0.0001", "--n0", "20", "--n", "5000", "--block", "50"]
    assert main(["predict", trained, str(pictures / "0.png"), *options, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["radius"] in (0.0, 0.0001)
    assert row["samples"] < 5000
    assert main(["predict", trained, str(pictures / "0.png"), "--stop-after", "0.2", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["samples"] >= 100


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_a_file_of_answers_goes_on_after_a_kill(
    trained: str, pictures: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"answers.{ending}"
    command = ["predict", trained, str(pictures), *FEW, "--out", str(out), "--seed", "3"]
    assert main(command) == 0
    whole = out.read_bytes()
    said = re.findall(r"(\d+) (?:classified|abstained)", capsys.readouterr().err)
    assert sum(map(int, said)) == 4
    for length in (0, 30, len(whole) // 2, len(whole) - 1, len(whole)):
        out.write_bytes(whole[:length])
        assert main(command) == 0
        assert out.read_bytes() == whole
    rows = (
        list(csv.DictReader(out.open()))
        if ending == "csv"
        else [json.loads(line) for line in out.read_text().splitlines()]
    )
    assert len(rows) == 4


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--sigma", "0.5"], "sigma 0.25 instead of 0.5"),
        (["--n", "200"], "n 100 instead of 200"),
        (["--alpha", "0.01"], "alpha 0.001 instead of 0.01"),
        (["--radius"], "mode class instead of radius"),
        (["--radius-at-least", "0.25"], "instead of radius >= 0.25"),
        (["--aggregation", "vote"], "aggregation ensemble instead of vote"),
        (["--noise", "gaussian"], "function "),
    ],
)
def test_answers_of_another_question_are_refused(  # noqa: PLR0917
    trained: str,
    pictures: Path,
    tmp_path: Path,
    ending: str,
    more: list[str],
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / f"answers.{ending}"
    command = ["predict", trained, str(pictures / "0.png"), *FEW, "--out", str(out)]
    assert main(command) == 0
    written = out.read_bytes()
    assert main([*command, *more]) == 2
    assert named in capsys.readouterr().err
    assert out.read_bytes() == written


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_answers_of_another_network_are_refused(
    trained: str, pictures: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"answers.{ending}"
    other = checkpoint.load(trained)
    with torch.no_grad():
        next(other.model.parameters()).add_(1e-3)
    checkpoint.save(tmp_path / "other", other.model, other.config, other.info)
    assert main(["predict", trained, str(pictures), *FEW, "--out", str(out)]) == 0
    written = out.read_bytes()
    assert main(["predict", str(tmp_path / "other"), str(pictures), *FEW, "--out", str(out)]) == 2
    assert "weights " in capsys.readouterr().err
    assert out.read_bytes() == written


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_a_picture_that_changed_is_not_answered_by_its_name(
    trained: str, pictures: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"answers.{ending}"
    command = ["predict", trained, str(pictures), *FEW, "--out", str(out)]
    assert main(command) == 0
    digit(7).save(pictures / "1.png")
    assert main(command) == 2
    assert "1.png has changed since it was answered" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_two_processes_that_write_one_file_lose_no_answer(
    trained: str, pictures: Path, tmp_path: Path, ending: str
) -> None:
    """The second one is refused while the first one writes, and answers the rest afterwards."""
    out = tmp_path / f"answers.{ending}"
    model = open_model(trained)
    smoothed = model.smoothed(n=100, n0=20, block=20)
    facts = function_facts(smoothed.certifier, model.weights, Question())
    with AnswerFile.open(out, facts) as file:
        file.write({"image": "first", "sha256": "0", "class": "1", "prediction": 1})
        with pytest.raises(HeldError, match="Another process writes"), AnswerFile.open(out, facts):
            pass
    with AnswerFile.open(out, facts) as file:
        assert file.answered == {"first": "0"}
        file.write({"image": "second", "sha256": "1", "class": "1", "prediction": 1})
    with AnswerFile.open(out, facts) as file:
        assert list(file.answered) == ["first", "second"]


def test_a_foreign_file_is_not_touched(
    trained: str, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("notes.csv", "notes.jsonl", "notes.txt"):
        (tmp_path / name).write_text("my notes\nsecond line")
        assert main(["predict", trained, str(pictures), "--out", str(tmp_path / name)]) == 2
        assert (tmp_path / name).read_text() == "my notes\nsecond line"


def test_pictures_are_averaged_as_in_training_and_resized_only_when_told(
    tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(network(tmp_path / "half", downscale=2))
    digit(0).resize((4, 4)).save(pictures / "small.png")
    digit(0).resize((30, 20)).save(pictures / "large.png")
    assert len(answers(capsys, folder, str(pictures / "0.png"), str(pictures / "small.png"))) == 2
    (row,) = answers(capsys, folder, str(pictures / "large.png"), code=2)
    assert "30x20 pixels, and the network takes 8x8 or 4x4" in row["error"]
    assert "--resize" in row["error"]
    assert answers(capsys, folder, str(pictures / "large.png"), "--resize")[0]["n"] == 100


def test_the_noise_is_secret_unless_a_seed_is_given(
    trained: str, pictures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used: list[int | None] = []

    def note(_: Model, config: CertifyConfig, **__: object) -> None:
        used.append(config.seed)
        raise ZeroDivisionError

    monkeypatch.setattr(Model, "certifier", note)
    picture = str(pictures / "0.png")
    for arguments in ([], [], ["--seed", "5"], ["--seed=5"]):
        with pytest.raises(ZeroDivisionError):
            main(["predict", trained, picture, *arguments])
    assert used == [None, None, 5, 5]  # none: drawn where nobody sees it
    assert capsys.readouterr().err.count("somebody who knows the seed") == 2
