from __future__ import annotations

import json
from pathlib import Path

import pytest

from smoothheads.cli import main

FEW = ["--index-samples", "150", "--samples", "20", "--block", "50", "--first", "3"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("diversity")
    small = ["--data.subset.first", "80", "--train.epochs", "1", "--train.batch", "32"]
    for heads in (1, 3):
        options = [*small, "--model.heads", str(heads), "--out", str(folder / str(heads))]
        assert main(["train", "digits-some", *options]) == 0
    return {heads: folder / str(heads) for heads in (1, 3)}


def test_json_holds_the_measures_and_the_histograms(
    trained: dict[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diversity", str(trained[3]), *FEW, "--index", "7", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["images"]["samples"], found["image"]["samples"]) == (60, 150)
    assert 0 <= found["images"]["disagreement"] <= 1
    assert 0 < found["images"]["variance_ratio"] <= 1.0001
    assert found["image"]["index"] == 7
    assert list(found["image"]["curves"]) == ["ensemble", "head-1", "head-2", "head-3"]
    assert found["sigma"] == 0.5


def test_tables_and_plot(
    trained: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "gaps.svg"
    assert main(["diversity", str(trained[3]), *FEW, "--plot", str(plot)]) == 0
    shown = capsys.readouterr()
    assert "disagreement" in shown.out
    assert "1/L when independently" in shown.out
    assert plot.read_bytes().startswith(b"<?xml")
    assert str(plot) in shown.err


def test_a_single_network_has_no_measures_of_its_heads(
    trained: dict[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diversity", str(trained[1]), *FEW]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[-3:] for line in shown.splitlines() if line.startswith("all samples")] == [["–"] * 3]
    assert "network" in shown
    assert "head-1" not in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--index", "5000"], "has no image 5000"),
        (["--samples", "0"], "samples >= 1, not 0"),
        (["--sigma", "-1"], "sigma > 0, not -1"),
        (["--plot", "gaps.gif"], "png, svg, pdf, not as 'gif'"),
    ],
)
def test_mistakes(
    trained: dict[int, Path], options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diversity", str(trained[3]), *FEW, *options]) == 2
    assert message in capsys.readouterr().err


def test_two_networks_side_by_side(
    trained: dict[int, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    both = [str(trained[3]), str(trained[1])]
    assert main(["diversity", *both, "--plot", "diversity.png", *FEW]) == 0
    shown = capsys.readouterr()
    assert (tmp_path / "diversity.png").read_bytes().startswith(b"\x89PNG")
    assert "3: head-2" in shown.out
    assert "1: network" in shown.out
    assert main(["diversity", *both, *FEW, "--json"]) == 0
    assert [one["heads"] for one in json.loads(capsys.readouterr().out)["networks"]] == [3, 1]
