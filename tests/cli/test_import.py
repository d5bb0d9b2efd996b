from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from smoothheads.checkpoint import load
from smoothheads.cli import main
from smoothheads.models.networks import resnet_cifar


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("evil",)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "digits.pth"
    torch.save({"state_dict": resnet_cifar(8, (1, 8, 8), 10).state_dict()}, path)
    return path


def options(out: Path, arch: str = "resnet8", data: str = "digits") -> list[str]:
    return ["--arch", arch, "--data", data, "-o", str(out), "--normalize", "standard"]


def test_what_is_imported_can_be_certified(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["import", str(file), *options(out), "--sigma", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"checkpoint": str(out)}
    ready = load(out)
    assert (ready.config.model.cut, ready.config.train.sigma) == ("stage2", 0.5)
    few = ["--n0", "20", "--n", "100", "--block", "20", "--first", "2"]
    assert main(["certify", str(out), *few]) == 0


def test_several_files_and_other_normalisations(file: Path, tmp_path: Path) -> None:
    assert main(["import", str(file), str(file), *options(tmp_path / "two"), "--normalize", "centre"]) == 0
    ready = load(tmp_path / "two")
    assert (ready.config.model.heads, ready.config.model.cut, ready.info.std) == (2, "input", (1.0,))
    assert main(["import", str(file), *options(tmp_path / "none"), "--normalize", "none"]) == 0
    assert not list(load(tmp_path / "none").model.normalize.buffers())


def test_mistakes_are_one_message(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, evil = tmp_path / "out", tmp_path / "evil.pth"
    torch.save({"state_dict": Evil()}, evil)
    for arguments, message in (
        ([str(evil), *options(out)], "nothing was executed"),
        ([str(tmp_path / "none.pth"), *options(out)], "check the path"),
        ([str(file), *options(out, "resnet14")], "missing: trunk.layer1.1"),
        ([str(file), *options(out, "resnet9")], "did you mean 'resnet8'?"),
        ([str(file), *options(out), "--heads", "5"], "with 5 head(s)"),
        ([str(file), *options(out), "--heads", "0"], "heads >= 1"),
        ([str(file), str(file), *options(out), "--cut", "stage2"], "the cut 'stage2'"),
        ([*options(out)], "Name at least one"),
        (
            [str(file), "--arch", "resnet8", "--data", "npz", "--normalize", "none", "-o", str(out)],
            "needs to know where",
        ),
    ):
        assert main(["import", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
        assert line.startswith("smoothheads: ")
        assert not out.exists()


def test_normalisation_is_asked_for_where_authors_differ(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    plain = ["import", str(file), "--arch", "resnet8", "--data", "digits", "-o", str(out)]
    assert main(plain) == 2
    assert "authors normalise images of digits in different ways" in capsys.readouterr().err
    assert main([*plain, "--normalize", "standard", "--mean", "0.25", "--std", "0.5"]) == 0
    normalize = load(out).model.normalize
    assert [b.item() for b in normalize.buffers()] == [0.25, 0.5]
    wrong = [*plain[:-1], str(tmp_path / "b"), "--normalize", "standard", "--mean", "0.25", "0.5"]
    assert main(wrong) == 2
    assert "--mean needs one value per channel, hence 1, not 2" in capsys.readouterr().err


def test_the_advice_for_a_folder_is_an_option_of_this_command(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["import", str(file), "--arch", "resnet50", "--data", "folder", "-o", str(tmp_path / "o")]) == 2
    )
    assert "--root FOLDER" in capsys.readouterr().err
