"""compare, audit, recertify and merge on real ledgers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smoothheads.cli import main

FEW = [
    "--seed",
    "0",
    "--sigma",
    "0.5",
    "--n0",
    "20",
    "--n",
    "200",
    "--block",
    "20",
    "--every",
    "9",
    "--first",
    "7",
]


@pytest.fixture
def ledger(network: Path) -> Path:
    assert main(["certify", str(network), *FEW]) == 0
    return network / "ledger"


def rows(folder: Path) -> list[list[str]]:
    lines = (folder / "ledger.tsv").read_text().splitlines()
    return [line.split("\t")[:5] + line.split("\t")[6:] for line in lines]


def test_shards_merge_to_the_ledger_of_one_process(
    network: Path,
    ledger: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    for shard in ("0/3", "1/3", "auto/3"):
        assert main(["certify", str(network), *FEW, "--shard", shard]) == 0
    shards = [str(network / f"ledger-{i}-of-3") for i in range(3)]
    assert main(["merge", *shards[:2], "--out", str(tmp_path / "gap")]) == 2
    assert "2 of the run's 7 images are missing (18, 45)" in capsys.readouterr().err
    assert main(["merge", *shards, "--out", str(tmp_path / "whole")]) == 0
    assert rows(tmp_path / "whole") == rows(ledger)
    assert main(["audit", str(tmp_path / "whole")]) == 0


@pytest.mark.parametrize("shard", ["3/3", "a/b", "1", "-1/2", "0/0"])
def test_impossible_shards_are_refused(network: Path, shard: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", str(network), *FEW, f"--shard={shard}"]) == 2
    assert "is no shard: give i/n with 0 <= i < n" in capsys.readouterr().err


def test_recertifying_needs_no_forward_pass_and_is_what_certifying_gives(
    network: Path, ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "again"
    assert (
        main(["recertify", str(ledger), "--alpha", "0.01", "--aggregation", "head-2", "--out", str(out)]) == 0
    )
    fresh = tmp_path / "fresh"
    options = ["--alpha", "0.01", "--aggregation", "head-2", "--out", str(fresh)]
    assert main(["certify", str(network), *FEW, *options]) == 0
    chained = [[row[:-1] for row in rows(folder)] for folder in (out, fresh)]  # their manifests differ
    assert chained[0] == chained[1]
    assert main(["recertify", str(ledger)]) == 2
    assert "Add --alpha or --aggregation" in capsys.readouterr().err


def test_a_sequential_ledger_cannot_be_recertified(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "table"
    assert (
        main(["certify", str(network), *FEW, "--budget", "table", "--radii", "0", "0.2", "--out", str(out)])
        == 0
    )
    assert main(["recertify", str(out), "--alpha", "0.01"]) == 2
    assert "budget table stops because of its votes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--budget", "table", "--label-aware"],
        ["--budget", "radius", "--label-aware"],
        ["--budget", "anytime"],
        ["--noise", "gaussian"],
    ],
)
def test_the_auditor_finds_nothing_wrong_with_our_ledgers(
    network: Path, tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ledger"
    at = FEW.index("--n0")
    few = FEW[:at] + FEW[at + 2 :] if "radius" in options else FEW
    assert main(["certify", str(network), *few, *options, "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["audit", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert [finding for finding in found["findings"] if finding["severity"] != "note"] == []


def test_the_auditor_notices_a_forged_radius(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ledger / "ledger.tsv"
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    lines[1][3] = "1.900000"
    lines[1][2] = lines[1][1]
    lines[1][4] = "1"
    path.write_text("\n".join("\t".join(line) for line in lines) + "\n")
    assert main(["audit", str(ledger)]) == 1
    assert "error" in capsys.readouterr().out


def test_compare_wants_two_logs(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(ledger)]) == 2
    assert "needs two logs or more" in capsys.readouterr().err
    assert main(["compare", str(ledger), str(ledger), "--format", "latex"]) == 0
    assert "tabular" in capsys.readouterr().out


def test_merging_a_single_ledger_writes_nothing(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert main(["merge", str(ledger), "--out", str(tmp_path / "merged")]) == 2
    assert "is no shard, so there is nothing to merge" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
