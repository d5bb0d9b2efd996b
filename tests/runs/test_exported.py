"""An exported folder answers as the run it came from, or not at all."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import smoothheads as sh
from smoothheads import checkpoint
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import ConversionCache, openvino
from smoothheads.config import load_json
from smoothheads.data import Splits, SubsetConfig, select
from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.runs.certify import certify_run
from smoothheads.runs.export import export_run
from smoothheads.runs.models import Export, from_pretrained, function_settings, is_export, open_checkpoint
from smoothheads.smoothed import Smoothed
from smoothheads.training import RunConfig

Make = Callable[..., Path]


@pytest.fixture
def out(certified_run: Make, tmp_path: Path) -> Path:
    return export_run(certified_run() / "ledger", tmp_path / "out")


def answers(smoothed: Smoothed, digits: Splits) -> list[Any]:
    """Votes and certificates to the last bit."""
    images = [digits.test.image(position) for position in range(3, 6)]
    votes = [smoothed.predict(image)[1].tolist() for image in images]
    return [*votes, *(smoothed.certify_image(image).certificate for image in images)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"aggregation": "consensus-2"},
        {"noise": "gaussian"},
        {"budget": "table", "radii": (0.0, 0.1), "label_aware": True},
    ],
)
def test_it_answers_as_the_run_did_when_that_is_gone(
    certified_run: Make, tmp_path: Path, small_digits: Splits, settings: dict[str, Any]
) -> None:
    run = certified_run(**settings)
    ready = open_checkpoint(run)
    config = CertifyConfig(
        sigma=0.25,
        seed=0,
        n0=20,
        n=100,
        block=20,
        **{key: value for key, value in settings.items() if key != "label_aware"},
    )
    before = answers(Smoothed(ready.model, ready.info, config), small_digits)
    export_run(run / "ledger", tmp_path / "out")
    shutil.move(tmp_path / "out", tmp_path / "moved")
    shutil.rmtree(run)
    smoothed = sh.from_pretrained(str(tmp_path / "moved"), seed=0)
    assert smoothed.config == config.resolved()
    assert not smoothed.notes
    assert answers(smoothed, small_digits) == before


@pytest.mark.openvino
@pytest.mark.parametrize(
    "settings",
    [
        {"precision": precision} | aggregation
        for precision in ("float32", "int8")
        for aggregation in ({}, {"aggregation": "consensus-2"})
    ],
)
def test_it_runs_the_converted_network_that_was_certified(
    certified_run: Make,
    tmp_path: Path,
    small_digits: Splits,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
) -> None:
    monkeypatch.setattr(openvino, "CALIBRATION", 10)
    run = certified_run(engine="openvino", **settings)
    ready, stated = open_checkpoint(run), load_json(run / "ledger" / "manifest.json")["engine"]
    config = CertifyConfig(sigma=0.25, seed=0, n0=20, n=100, block=20, engine="openvino", **settings)
    before = answers(
        Smoothed(ready.model, ready.info, config, cache=ConversionCache(run / "engines")), small_digits
    )
    out = export_run(run / "ledger", tmp_path / "out")
    shutil.rmtree(run)

    def never(*_: object) -> None:
        raise AssertionError("an export converts nothing")

    monkeypatch.setattr("smoothheads.certify.engines.openvino.obtain", never)
    smoothed = from_pretrained(out, seed=0)
    assert smoothed.engine.describe() == stated
    assert answers(smoothed, small_digits) == before


def test_a_flipped_bit_in_any_file_is_refused(out: Path) -> None:
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) == 8
    for path in files:
        data = path.read_bytes()
        for position in {0, len(data) // 2, len(data) - 1}:
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            with pytest.raises(CheckpointError, match="is not as it was exported"):
                Export.open(out)
        path.write_bytes(data)
    Export.open(out)


def test_no_byte_of_the_list_may_change(out: Path) -> None:
    path = out / "SHA256SUMS"
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        for bit in (0, 5, 7):
            path.write_bytes(data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1 :])
            with pytest.raises(CheckpointError):
                Export.open(out)


def test_a_missing_file_is_refused_and_the_rest_does_not_pass_for_a_checkpoint(out: Path) -> None:
    for path in [path for path in out.rglob("*") if path.is_file()]:
        data = path.read_bytes()
        path.unlink()
        assert is_export(out)
        with pytest.raises(CheckpointError, match=path.name):
            Export.open(out)
        path.write_bytes(data)
    lines = (out / "SHA256SUMS").read_text().splitlines(keepends=True)
    (out / "SHA256SUMS").write_text("".join(line for line in lines if "manifest.json" not in line))
    with pytest.raises(CheckpointError, match=r"no line for checkpoint/manifest.json, ledger/manifest.json"):
        Export.open(out)


def test_the_list_leads_nowhere_else(out: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    with (out / "SHA256SUMS").open("a") as file:
        file.write(f"{empty}  ../outside\n")
    with pytest.raises(CheckpointError, match="outside has sha256 no file"):
        Export.open(out)


def test_a_note_beside_the_files_does_no_harm_and_nothing_is_written(out: Path) -> None:
    (out / "note.txt").write_text("approved")
    before = sorted(out.rglob("*"))
    for path in [out, *(path for path in before if path.is_dir())]:
        path.chmod(0o555)
    try:
        from_pretrained(out)
        assert sorted(out.rglob("*")) == before
    finally:
        for path in [out, *(path for path in before if path.is_dir())]:
            path.chmod(0o755)


def test_another_budget_is_fine_but_another_function_is_refused(out: Path, small_digits: Splits) -> None:
    smoothed = from_pretrained(out, n=60, alpha=0.01, seed=5)
    assert smoothed.predict(small_digits.test.image(0))[1].sum() == 60
    others: dict[str, Any] = {
        "sigma": 0.5, "noise": "gaussian", "aggregation": "head-1", "block": 10, "engine": "openvino",
        "precision": "bfloat16", "device": "cuda",
        "threads": 2,
    }  # fmt: skip
    stated = set(function_settings(CertifyConfig(sigma=0.25)))
    assert stated - {"options"} <= others.keys()
    for name, value in others.items():
        said = re.escape(json.dumps(value))
        with pytest.raises(ConfigError, match=rf"was certified: .*{name} = {said} instead of"):
            from_pretrained(out, **{name: value})


def test_other_software_is_named(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from smoothheads.runs import models

    monkeypatch.setattr(
        models, "versions", lambda: models.Export.open(out).manifest.versions | {"torch": "9"}
    )
    (note,) = from_pretrained(out).notes
    assert 'may differ here: versions.torch "9", certified with' in note


def test_a_network_that_the_registry_does_not_know(
    tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits
) -> None:
    run = RunConfig(model=ModelConfig(arch="own", heads=2))
    checkpoint.save(tmp_path / "own" / "checkpoint", tiny_network(heads=2), run, small_digits.train.info)
    ready = checkpoint.load(tmp_path / "own" / "checkpoint", tiny_network(heads=2))
    images = select(small_digits.test, SubsetConfig(first=1))
    settings = CertifyConfig(sigma=0.25, seed=0, n0=20, n=100, block=20)
    out = export_run(certify_run(ready, images, settings, tmp_path / "own" / "ledger"), tmp_path / "out")
    with pytest.raises(CheckpointError, match="holds a module of your own"):
        from_pretrained(out)
    smoothed = from_pretrained(out, model=tiny_network(heads=2, seed=7))
    assert smoothed.predict(images.image(0), 0)[1].sum() == 100
