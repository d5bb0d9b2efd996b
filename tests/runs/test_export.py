"""What is shipped is what was certified, or nothing is shipped."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smoothheads.certify.config import CertifyConfig
from smoothheads.data import Splits, SubsetConfig, select
from smoothheads.errors import CheckpointError, LedgerError, StorageError
from smoothheads.results.derive import recertify
from smoothheads.results.read import read_log
from smoothheads.runs.certify import certify_run
from smoothheads.runs.export import export_run
from smoothheads.runs.models import open_checkpoint

Make = Callable[..., Path]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_folder_is_whole_and_the_same_every_time(certified_run: Make, tmp_path: Path) -> None:
    run = certified_run()
    one, other = (contents(export_run(run / "ledger", tmp_path / name)) for name in ("one", "other"))
    assert one == other
    inner = {f"checkpoint/{name}" for name in ("model.safetensors", "config.json", "manifest.json")}
    inner |= {"ledger/ledger.tsv", "ledger/manifest.json"}
    assert one.keys() == inner | {"export.json", "README.txt", "SHA256SUMS"}
    assert all(one[name] == (run / name).read_bytes() for name in inner)
    lines = (line.split() for line in one["SHA256SUMS"].decode().splitlines())
    assert {name: digest for digest, name in lines} == {
        name: hashlib.sha256(data).hexdigest() for name, data in one.items() if name != "SHA256SUMS"
    }
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_receiver_sees_what_was_certified(certified_run: Make, tmp_path: Path) -> None:
    run = certified_run(aggregation="head-1", alpha=0.01)
    log = read_log(run / "ledger")
    out = export_run(run / "ledger", tmp_path / "out")
    found: dict[str, Any] = json.loads((out / "export.json").read_text())["summary"]
    assert (found["images"], found["n"], found["alpha"], found["aggregation"]) == (3, 100, 0.01, "head-1")
    assert found["acr"]["value"] == pytest.approx((log.correct * log.radius).mean())
    assert found["certified"][0]["value"] == found["accuracy"] == log.correct.mean()
    classes = found["classes"]
    assert (classes["present"], classes["certified"]["value"]) == (len(log.class_acr), log.certified_classes)
    assert classes["worst_acr"]["value"] == pytest.approx(log.class_acr[classes["worst"]])
    assert classes["spread"]["value"] == pytest.approx(
        max(log.class_acr.values()) - min(log.class_acr.values())
    )
    low, high = classes["worst_acr"]["interval"]
    assert low <= classes["worst_acr"]["value"] <= high
    assert [each["radius"] for each in classes["worst_certified"]] == [
        each["radius"] for each in found["certified"]
    ]
    text = (out / "README.txt").read_text()
    assert "3 test images of digits: sigma 0.25 (grid noise), n 100, alpha 0.01" in text
    assert f"Classes with a certificate: {log.certified_classes} of {len(log.class_acr)}" in text
    assert "images of integers from 0 to 16" in " ".join(text.split())
    assert "{" not in text


@pytest.mark.openvino
def test_the_converted_network_of_the_ledger_is_the_one_that_is_shipped(
    certified_run: Make, tmp_path: Path
) -> None:
    run = certified_run(engine="openvino")
    (folder,) = run.glob("engines/*/openvino-float32")
    older = shutil.copytree(folder, folder.with_name("an-older-one"))
    (older / "model.bin").write_bytes(b"older")
    out = export_run(run / "ledger", tmp_path / "out")
    assert contents(out / "engine") == contents(folder)
    assert "with its extra openvino" in (out / "README.txt").read_text()
    (folder / "model.bin").write_bytes(b"quantised once more")
    with pytest.raises(CheckpointError, match="only 2 others"):
        export_run(run / "ledger", tmp_path / "again")
    shutil.rmtree(run / "engines")
    with pytest.raises(CheckpointError, match="certify again"):
        export_run(run / "ledger", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_other_weights_than_the_certified_ones_are_refused(certified_run: Make, tmp_path: Path) -> None:
    run, other = certified_run(), certified_run("other", seed=1)
    with pytest.raises(LedgerError, match="The ledger was certified with the weights"):
        export_run(run / "ledger", tmp_path / "out", checkpoint=other)
    weights = run / "checkpoint" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"model\.safetensors has another sha256"):
        export_run(run / "ledger", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_ledger_elsewhere_is_told_its_checkpoint(certified_run: Make, tmp_path: Path) -> None:
    run = certified_run()
    ledger = shutil.copytree(run / "ledger", tmp_path / "elsewhere" / "ledger")
    with pytest.raises(CheckpointError, match="has no checkpoint of this ledger"):
        export_run(ledger, tmp_path / "out")
    one = contents(export_run(ledger, tmp_path / "out", checkpoint=run))
    assert one == contents(export_run(ledger, tmp_path / "again", checkpoint=run / "checkpoint"))


def test_half_a_ledger_and_a_foreign_log_are_refused(
    certified_run: Make, tmp_path: Path, small_digits: Splits
) -> None:
    run = certified_run()
    table = run / "ledger" / "ledger.tsv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(LedgerError, match="lacks 2 of 3 images: run its `certify` again"):
        export_run(run / "ledger", tmp_path / "out")
    images = select(small_digits.test, SubsetConfig(first=3))
    settings = CertifyConfig(sigma=0.25, seed=0, n0=20, n=100, block=20)
    shard = certify_run(open_checkpoint(run), images, settings, run / "ledger-0-of-3", shard=(0, 3))
    with pytest.raises(LedgerError, match="or `merge` the shards"):  # a complete shard, but not the run
        export_run(shard, tmp_path / "out")
    log = tmp_path / "foreign.tsv"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01\n")
    with pytest.raises(LedgerError, match="is no ledger of `smoothheads certify`"):
        export_run(log, tmp_path / "out")


def test_a_recertified_ledger_ships_its_own_settings(certified_run: Make, tmp_path: Path) -> None:
    run = certified_run()
    out = export_run(recertify(run / "ledger", run / "head-1", aggregation="head-1"), tmp_path / "out")
    assert json.loads((out / "export.json").read_text())["summary"]["aggregation"] == "head-1"


def test_what_stands_there_stays_and_a_failure_leaves_nothing(
    certified_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = certified_run()
    with pytest.raises(StorageError, match="a new or empty folder"):
        export_run(run / "ledger", run)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError, match="No space left"):
        export_run(run / "ledger", tmp_path / "out")
    assert list(tmp_path.iterdir()) == [run]
