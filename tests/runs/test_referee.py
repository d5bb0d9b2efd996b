"""The referee: liars are caught, honest certifiers are not, and a ledger belongs to its network."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.example import example_export, example_run

from smoothheads.certify.config import CertifyConfig
from smoothheads.cli import main
from smoothheads.data import SubsetConfig
from smoothheads.errors import ConfigError, LedgerError
from smoothheads.results.ledger import load, save
from smoothheads.runs.certify import certification_images, certify_run
from smoothheads.runs.liars import LIARS, examine, find_certifier, plain, self_test
from smoothheads.runs.models import open_checkpoint
from smoothheads.runs.referee import Rerun, rerun


def test_every_liar_is_caught_and_nobody_else() -> None:
    trials = self_test()
    assert [trial.liar for trial in trials if not trial.passed] == []
    assert {"an honest certifier", "log: an honest log"} <= {t.liar for t in trials if not t.must}
    assert set(LIARS) <= {trial.liar for trial in trials}


def test_honest_certifiers_pass() -> None:
    for _ in range(3):  # each check fails an honest certifier with probability 1e-6
        assert examine(plain) == []


def test_certifiers_are_found_by_name_and_by_path() -> None:
    assert find_certifier("plain") is plain
    assert find_certifier("smoothheads.runs.liars:plain") is plain
    with pytest.raises(ConfigError, match="There is no certifier 'nobody'"):
        find_certifier("nobody")
    for name in ("smoothheads.nothing:x", "smoothheads.runs.liars:nothing"):
        with pytest.raises(ConfigError, match="check the name"):
            find_certifier(name)


def test_votes_come_out_equal_in_a_fresh_process(capsys: pytest.CaptureFixture[str]) -> None:
    again = rerun(example_run() / "ledger-fixed", 2)
    assert again.different == ()
    assert again.moved == (0, 0)
    (finding,) = again.findings()
    assert finding.severity == "note"
    assert "with 95 % confidence fewer than 77.6% of the 6 rows" in finding.message
    export = example_export()
    capsys.readouterr()
    assert main(["audit", str(export), "--rerun", "2", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["findings"][0]["code"] == "rerun"
    assert not any("which network" in each for each in result["unseen"])


def test_votes_under_another_seed_are_not_this_ledger_s(tmp_path: Path) -> None:
    shutil.copytree(example_run() / "ledger-fixed", tmp_path / "ledger")
    contents = load(tmp_path / "ledger")
    certify = replace(contents.manifest.certify, seed=99)
    save(tmp_path / "ledger", replace(contents.manifest, certify=certify), contents.lines)
    again = rerun(tmp_path / "ledger", 6, checkpoint=example_run())
    assert again.different
    assert again.findings()[0].severity == "error"


def test_votes_that_a_clock_ended_come_out_equal(tmp_path: Path) -> None:
    """Another run of the clock would end elsewhere, so the ledger tells how many samples an image got."""
    checkpoint = open_checkpoint(example_run())
    images = certification_images(checkpoint, SubsetConfig(first=2))
    config = CertifyConfig(sigma=0.25, budget="anytime", block=50, n=100_000, seconds=0.05, seed=0)
    ledger = certify_run(checkpoint, images, config, tmp_path / "ledger")
    again = rerun(ledger, 2, checkpoint=example_run())
    assert again.moved == (0, 0)
    assert min(again.samples) < 100_000


def test_another_network_is_named(tmp_path: Path) -> None:
    shutil.copytree(example_run() / "ledger-fixed", tmp_path / "ledger")
    contents = load(tmp_path / "ledger")
    save(tmp_path / "ledger", replace(contents.manifest, weights="0" * 64), contents.lines)
    with pytest.raises(LedgerError, match="was certified with the weights 000000000000"):
        rerun(tmp_path / "ledger", 1, checkpoint=example_run())


def test_confidence_grows_with_the_images() -> None:
    few = Rerun((1,), 100, (0,), (1100,), "net", "grid noise")
    many = Rerun(tuple(range(20)), 100, (0,) * 20, (1100,) * 20, "net", "grid noise")
    assert few.undetected == pytest.approx(0.95)
    assert many.undetected == pytest.approx(1 - 0.05 ** (1 / 20))
    assert Rerun((1, 2), 9, (0, 50), (1100, 1100), "net", "noise").different == (2,)
