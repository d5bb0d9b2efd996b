"""`certify` of a classifier that was not trained here: an ONNX file, or what package.module:function
names."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from smoothheads.cli import main
from smoothheads.results.read import read_log

FEW = ["--sigma", "0.25", "--n0", "20", "--n", "200", "--block", "20", "--seed", "0"]
BEHIND = ["--sigma", "0.25", "--data", "folder", "--root", "pictures", "--denoiser"]
MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        margin = x.mean((1, 2, 3)) - 0.5
        return torch.stack([-margin, margin], 1)

def make():
    return Net()

def classes(samples):
    return (samples.mean((1, 2, 3)) > 0.5).astype(int)

def undecided(samples):
    return (samples[:, 0, 0, 0] > 0.5).astype(int)

def wrong(samples):
    return samples.mean((1, 2, 3))

def flat(images, sigma):
    return images.mean((2, 3), keepdim=True).clamp(0, 1).expand_as(images)

def loud(images, sigma):
    return 9 * images
"""


class Brightness(nn.Module):
    def forward(self, x_NCHW: Tensor) -> Tensor:
        margin_N = x_NCHW.mean((1, 2, 3)) - 0.5
        return torch.stack([-margin_N, margin_N], 1)


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Dark and bright pictures in a folder per class; the current folder has a module of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    Path("mine.py").write_text(MODULE)
    for name, level in (("bright", 225), ("dark", 30)):
        folder = tmp_path / "pictures" / "test" / name
        folder.mkdir(parents=True)
        for number in range(3):
            Image.fromarray(np.full((8, 8, 3), level + number, np.uint8)).save(folder / f"{number}.png")
    return tmp_path / "pictures"


def data(pictures: Path) -> list[str]:
    return ["--data", "folder", "--root", str(pictures), *FEW]


def test_certify_onnx_file(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")

    class Bright0(Brightness):  # folders are sorted by name: class 0 is bright
        def forward(self, x_NCHW: Tensor) -> Tensor:
            return super().forward(x_NCHW).flip(1)

    torch.onnx.export(Bright0(), (torch.zeros(1, 3, 8, 8),), "model.onnx", dynamo=False)
    assert main(["certify", "model.onnx", *data(pictures)]) == 0
    log = read_log(Path("model-ledger"))
    assert log.prediction.tolist() == [0, 0, 0, 1, 1, 1]
    assert (log.radius > 0).all()
    assert log.manifest is not None
    assert log.manifest.engine["classifier"] == "onnx"
    assert log.manifest.weights == log.manifest.engine["sha256"]
    assert main(["audit", "model-ledger"]) == 0
    written = Path("model-ledger/ledger.tsv").read_bytes()
    assert main(["certify", "model.onnx", *data(pictures)]) == 0  # it goes on, and nothing is left to do
    assert Path("model-ledger/ledger.tsv").read_bytes() == written
    torch.onnx.export(Brightness(), (torch.zeros(1, 3, 8, 8),), "model.onnx", dynamo=False)
    capsys.readouterr()
    assert main(["certify", "model.onnx", *data(pictures)]) == 2  # another file under the same name
    assert "weights" in capsys.readouterr().err
    assert Path("model-ledger/ledger.tsv").read_bytes() == written


@pytest.mark.parametrize("name", ["mine:make", "mine:Net", "mine:classes"])
def test_certify_module_factory_and_function(pictures: Path, name: str) -> None:
    assert main(["certify", name, *data(pictures), "--out", "ledger"]) == 0
    assert read_log(Path("ledger")).prediction.tolist() == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("name", ["mine:make", "mine:classes"])
def test_certify_behind_a_denoiser(pictures: Path, name: str) -> None:
    assert main(["certify", name, *data(pictures), "--denoiser", "mine:flat"]) == 0
    log = read_log(Path(f"{name.replace(':', '.')}-denoised-ledger"))
    assert log.prediction.tolist() == [1, 1, 1, 0, 0, 0]
    assert log.manifest is not None
    facts = log.manifest.network | log.manifest.engine
    assert facts["denoiser"]["name"] == "mine:flat"


def test_certify_trained_checkpoint_behind_a_denoiser(pictures: Path) -> None:
    """The network that training wrote stands behind a denoiser, and its images are those of training."""
    train = ["train", "digits-single", "--train.epochs", "1", "--out", "run"]
    assert main(train) == 0
    command = ["certify", "run", "--denoiser", "mine:flat", "--first", "3", *FEW]
    assert main(command) == 0
    assert not Path("run/ledger").exists()
    log = read_log(Path("run/denoised-ledger"))
    assert len(log) == 3
    assert log.manifest is not None
    assert log.manifest.network["denoiser"]["name"] == "mine:flat"
    assert main(command) == 0  # and the ledger goes on


def test_workers_certify_a_function_alike(pictures: Path) -> None:
    for workers in ("1", "2"):
        command = [
            "certify",
            "mine:classes",
            *data(pictures),
            "--workers",
            workers,
            "--out",
            f"ledger-{workers}",
        ]
        assert main(command) == 0
    one, two = (read_log(Path(f"ledger-{workers}")) for workers in ("1", "2"))
    assert one.radius.tolist() == two.radius.tolist()


def test_certify_says_why_it_abstains_on_everything(
    pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (pictures / "test").iterdir():
        for number in range(3):
            Image.fromarray(np.full((8, 8, 3), 127, np.uint8)).save(folder / f"{number}.png")
    assert main(["certify", "mine:undecided", *data(pictures)]) == 0
    assert "never trained with noise" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine:wrong", "--sigma", "0.25", "--data", "folder", "--root", "pictures"], "neither logits"),
        (
            ["mine:nothing", "--sigma", "0.25", "--data", "folder", "--root", "pictures"],
            "Cannot find mine:nothing",
        ),
        (["mine:make", "--data", "folder", "--root", "pictures"], "Give --sigma"),
        (["mine:make", *BEHIND, "mine:loud"], "images lie in [0, 1]"),
        (["mine:make", *BEHIND, "mine:none"], "Cannot find mine:none"),
        (["mine:make", *BEHIND, "nowhere"], "checkpoint"),
        (["mine:make", *BEHIND, "zoo:nothing"], "The zoo has no 'nothing'"),
        (["mine:make", "--sigma", "0.25"], "Give --data"),
        (["none.onnx", "--sigma", "0.25", "--data", "folder", "--root", "pictures"], "Cannot read none.onnx"),
        (
            ["mine:make", "--sigma", "0.25", "--data", "digits", "--image-size", "9"],
            "--image-size is for --data",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_certifies_nothing(
    pictures: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pictures.is_dir()
    assert main(["certify", *arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors
    assert all(len(table.read_text().splitlines()) == 1 for table in Path().glob("*ledger*/ledger.tsv"))


def test_predict_says_that_it_needs_more_than_a_file(
    pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "mine:make", str(pictures)]) == 2
    assert "does not say what images it takes" in capsys.readouterr().err


def test_help_names_the_sigma_that_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["certify", "--help"])
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "whatever its law (default: that of the training)." in words
    assert "(default: 0.25)" not in words
