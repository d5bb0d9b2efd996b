"""What a second evaluation does to a ledger on the disk: it is confirmed, or its rows are taken away."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.example import example_run
from torch import Tensor

from smoothheads.certify import soundness
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.soundness import NotAFunctionError
from smoothheads.cli import main
from smoothheads.data import SubsetConfig, load, select
from smoothheads.errors import SmoothheadsError
from smoothheads.models.multihead import MultiHead
from smoothheads.results import read_log
from smoothheads.results.ledger import load as load_ledger
from smoothheads.results.ledger import save
from smoothheads.runs.certify import RECHECK, VOID, certify_run
from smoothheads.runs.models import open_checkpoint
from smoothheads.runs.referee import recheck_votes

TABLE = "ledger.tsv"


def copied_ledger(folder: Path) -> Path:
    return Path(shutil.copytree(example_run() / "ledger-fixed", folder / "ledger"))


def test_recheck_votes_confirms_an_honest_ledger(tmp_path: Path) -> None:
    ledger = copied_ledger(tmp_path)
    before = (ledger / TABLE).read_bytes()
    assert recheck_votes(example_run(), ledger, 2).different == ()
    assert (ledger / TABLE).read_bytes() == before
    assert json.loads((ledger / RECHECK).read_text())["fresh_process"]


def test_recheck_votes_voids_a_ledger_with_other_votes(tmp_path: Path) -> None:
    """The ledger says another seed than the one that its votes were drawn with."""
    ledger = copied_ledger(tmp_path)
    contents = load_ledger(ledger)
    other = replace(contents.manifest, certify=replace(contents.manifest.certify, seed=99))
    save(ledger, other, contents.lines)
    with pytest.raises(NotAFunctionError, match="void"):
        recheck_votes(example_run(), ledger, 6)
    assert not (ledger / TABLE).exists()
    assert (ledger / VOID).is_file()
    with pytest.raises(SmoothheadsError):
        read_log(ledger)


@pytest.mark.parametrize("guarded", [True, False])
def test_certify_run_leaves_no_ledger_of_a_mixing_network(
    guarded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the second evaluation, the same network gets certificates for all images."""
    run, plain = example_run(), MultiHead.forward

    def mixed(self: MultiHead, images: Tensor) -> Tensor:
        logits = plain(self, images)
        return logits + 10 * torch.roll(logits, 1, dims=1)

    monkeypatch.setattr(soundness, "check_function", lambda *_, **__: True)  # as if the probe saw nothing
    monkeypatch.setattr(MultiHead, "forward", mixed)
    checkpoint = open_checkpoint(run)
    images = select(load(checkpoint.config.data).test, SubsetConfig(first=2))
    config = CertifyConfig(sigma=0.25, n=400, seed=0, recheck=0.2 if guarded else 0.0)
    if not guarded:
        assert len(read_log(certify_run(checkpoint, images, config, tmp_path / "ledger"))) == 2
        return
    with pytest.raises(NotAFunctionError):
        certify_run(checkpoint, images, config, tmp_path / "ledger")
    assert not (tmp_path / "ledger" / TABLE).exists()
    with pytest.raises(SmoothheadsError):
        read_log(tmp_path / "ledger")


LIAR = """
import torch

calls = 0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, x):
        global calls
        calls += 1
        logits = self.layer(x.flatten(1))
        return logits if calls < 30 else logits.flip(1)
"""


def test_liar_in_a_worker_process_voids_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes back from another process and is still recognised."""
    (tmp_path / "liar_in_a_worker.py").write_text(LIAR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    data = ["--data", "digits", "--first", "4", "--sigma", "0.5", "--n", "2000", "--seed", "0"]
    how = ["--workers", "2", "--recheck", "0.2", "--engine", "torch", "--out", "ledger"]
    assert main(["certify", "liar_in_a_worker:Net", *data, *how]) == 2
    assert not (tmp_path / "ledger" / TABLE).exists()
    assert (tmp_path / "ledger" / VOID).is_file()


OWN = """
from pathlib import Path

import numpy as np

def classify(samples):
    bright = samples.mean((1, 2, 3)) > 0.3
    return (bright ^ Path("flag").exists()).astype(int)

def darker(images, sigma):
    return (0.9 * images).clip(0, 1)
"""


@pytest.mark.parametrize("denoiser", [(), ("--denoiser", "own_recheck:darker")])
def test_recheck_votes_of_an_own_classifier(
    denoiser: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger names classifier, denoiser and images, so that a fresh process opens them again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_recheck.py").write_text(OWN)
    settings = ["--data", "digits", "--sigma", "0.25", "--n0", "20", "--n", "60", "--block", "20"]
    main(["certify", "own_recheck:classify", *settings, *denoiser, "--first", "3", "--out", "ledger"])
    assert recheck_votes(None, "ledger", 3).moved == (0, 0, 0)
    # The classifier reads a file, which no hash of weights and no second evaluation in the run can show.
    Path("flag").touch()
    with pytest.raises(NotAFunctionError, match="fresh process"):
        recheck_votes(None, "ledger", 3)
    assert not Path("ledger", TABLE).exists()


def test_recheck_votes_of_a_checkpoint_behind_a_denoiser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_recheck.py").write_text(OWN)
    few = ["--n0", "20", "--n", "60", "--block", "20", "--first", "3", "--out", "ledger"]
    main(["certify", str(example_run()), "--denoiser", "own_recheck:darker", *few])
    assert recheck_votes(None, "ledger", 3).moved == (0, 0, 0)
