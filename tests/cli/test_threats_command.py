"""Other noise and other threats on the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoothheads.cli import main
from smoothheads.results.read import read_log

FEW = ["--sigma", "0.5", "--n0", "20", "--n", "200", "--block", "20", "--first", "6"]


def test_threats_of_an_l2_ledger(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", str(network), *FEW]) == 0
    ledger = network / "ledger"
    capsys.readouterr()
    assert main(["threats", str(ledger), "--linf", "--top-k", "2", "5", "--radii", "0", "0.1"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("l-infinity", "1/16", "top-2", "top-5"))
    assert main(["threats", str(ledger), "--linf", "--top-k", "2", "--json"]) == 0
    linf, own, top_2 = json.loads(capsys.readouterr().out)
    log = read_log(ledger)
    assert [image["radius"] for image in linf["images"]] == pytest.approx((log.radius / 8).tolist())
    assert (own["norm"], top_2["threat"]) == ("l2", "top-2")
    assert main(["threats", str(ledger)]) == 2
    assert "Name a threat: add --linf, --top-k K, or both." in capsys.readouterr().err
    assert main(["threats", str(ledger), "--top-k", "10"]) == 2
    assert "k is 10; choose 1 <= k <= 9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("noise", "options"),
    [
        ("uniform", []),
        ("uniform", ["--budget", "table"]),
        ("uniform", ["--alpha", "0.01"]),
        ("laplace", []),
        ("laplace", ["--budget", "radius"]),
        ("laplace", ["--budget", "anytime"]),
    ],
)
def test_l1_ledgers_are_certified_and_pass_their_audit(
    network: Path, tmp_path: Path, noise: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ledger"
    at = FEW.index("--n0")
    few = FEW[:at] + FEW[at + 2 :] if "radius" in options else FEW
    assert main(["certify", str(network), *few, "--noise", noise, *options, "--out", str(out)]) == 0
    assert "at l1 radius r" in capsys.readouterr().out
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["norm"], manifest["shape"], manifest["grid"]) == ("l1", [1, 8, 8], 16)
    assert "l1 norm" in manifest["scope"]
    assert main(["audit", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert [finding for finding in found["findings"] if finding["severity"] != "note"] == []
    assert read_log(out).radius.max() <= math.sqrt(3) * 0.5 or noise == "laplace"


def test_l1_and_l2_ledgers_are_kept_apart(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    l2, l1 = tmp_path / "l2", tmp_path / "l1"
    for out, noise in ((l2, "grid"), (l1, "uniform")):
        assert main(["certify", str(network), *FEW, "--noise", noise, "--out", str(out)]) == 0
    assert main(["report", str(l1), "--out", str(tmp_path / "report")]) == 0
    assert "an l1 norm below its radius" in (tmp_path / "report" / "report.html").read_text()
    assert main(["compare", str(l2), str(l1), "--align"]) == 2
    assert "l2 has l2 radii and l1 l1 radii" in capsys.readouterr().err
    assert main(["certify", str(network), *FEW, "--noise", "laplace", "--out", str(l1)]) == 2
    assert 'certify.noise = "laplace"' in capsys.readouterr().err


def test_predict_names_the_norm(network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "digit.png"
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(picture)
    options = ["--sigma", "0.5", "--noise", "uniform", "--n", "100", "--radius", "--json"]
    assert main(["predict", str(network), str(picture), *options]) == 0
    assert json.loads(capsys.readouterr().out)[0]["norm"] == "l1"
