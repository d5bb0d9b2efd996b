"""A classifier of the zoo is taken wherever a checkpoint is, and only with all of its hashes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.example import FEW, example_export, example_run

import smoothheads as sh
from smoothheads import checkpoint, zoo
from smoothheads.cli import main
from smoothheads.errors import CheckpointError
from smoothheads.files import sha256


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo of one classifier; returns its folder."""
    (tmp_path / "zoo.json").write_text("[]")
    monkeypatch.setattr(zoo, "INDEX", tmp_path / "zoo.json")
    monkeypatch.setattr(zoo, "PLACES", (tmp_path / "package", tmp_path / "zoo"))
    command = "smoothheads train digits"
    return zoo.add(example_export(), "digits-tiny", command=command, cost="5 s", root=tmp_path / "zoo")


@pytest.mark.usefixtures("tiny")
def test_python_takes_it() -> None:
    loaded = sh.load_checkpoint("zoo:digits-tiny")
    assert loaded.weights_hash == checkpoint.load(example_export()).weights_hash
    assert sh.read_log("zoo:digits-tiny").acr == sh.read_log(example_export()).acr
    assert sh.from_pretrained("zoo:digits-tiny").info.classes == 10
    assert checkpoint.load(Path("zoo:digits-tiny")).info.classes == 10


@pytest.mark.usefixtures("tiny")
def test_commands_take_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "image.png")
    assert main(["predict", "zoo:digits-tiny", str(tmp_path / "image.png"), "--n", "100"]) == 0
    for command in ("report", "audit", "info"):
        assert main([command, "zoo:digits-tiny"]) == 0, capsys.readouterr().err
    assert main(["certify", "zoo:digits-tiny", *FEW]) == 2  # the zoo is no place for results
    assert "--out" in capsys.readouterr().err
    assert main(["certify", "zoo:digits-tiny", *FEW, "--out", str(tmp_path / "ledger")]) == 0


def test_zoo_lists_name_metrics_and_command(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo"]) == 0
    shown = capsys.readouterr().out
    assert "zoo:digits-tiny" in shown
    assert "digits, sigma 0.25, 6 images: ACR" in shown
    assert "trained by: smoothheads train digits (5 s)" in shown
    assert main(["zoo", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["size"] == sum(path.stat().st_size for path in tiny.rglob("*") if path.is_file())


@pytest.mark.usefixtures("tiny")
def test_unknown_name_is_suggested() -> None:
    with pytest.raises(CheckpointError, match=r"The zoo has no 'digit-tiny': did you mean 'digits-tiny'"):
        sh.load_checkpoint("zoo:digit-tiny")


@pytest.mark.parametrize("file", ["checkpoint/model.safetensors", "ledger/ledger.tsv", "SHA256SUMS"])
def test_changed_file_is_refused(tiny: Path, file: str) -> None:
    data = bytearray((tiny / file).read_bytes())
    data[-2] ^= 1
    (tiny / file).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{file} of zoo:digits-tiny is missing or has another hash"):
        sh.load_checkpoint("zoo:digits-tiny")


def test_forged_list_of_hashes_is_refused(tiny: Path) -> None:
    """Who can rewrite a file can rewrite SHA256SUMS, but not the index in the package."""
    (tiny / "README.txt").write_text("mine")
    lines = (tiny / "SHA256SUMS").read_text().splitlines()
    forged = f"{sha256(tiny / 'README.txt')}  README.txt"
    lines = [forged if line.endswith("README.txt") else line for line in lines]
    (tiny / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    with pytest.raises(CheckpointError, match="SHA256SUMS of zoo:digits-tiny"):
        sh.load_checkpoint("zoo:digits-tiny")


def test_files_that_are_not_installed(tiny: Path) -> None:
    shutil.rmtree(tiny)
    with pytest.raises(CheckpointError, match="not in this installation"):
        sh.load_checkpoint("zoo:digits-tiny")


def test_half_precision_is_another_function(tmp_path: Path) -> None:
    """The checkpoint holds the rounded weights, and its hash is theirs."""
    original = checkpoint.load(example_run())
    checkpoint.save(tmp_path / "half", original.model, original.config, original.info, half=True)
    half, full = tmp_path / "half" / "model.safetensors", example_run() / "checkpoint" / "model.safetensors"
    assert half.stat().st_size < 0.6 * full.stat().st_size
    rounded = checkpoint.load(tmp_path / "half")
    assert rounded.weights_hash != original.weights_hash
    for name, value in rounded.model.state_dict().items():
        before = original.model.state_dict()[name]
        assert value.dtype == before.dtype
        assert torch.equal(value, before.half().float() if before.dtype == torch.float32 else before)


def test_half_precision_of_too_large_weights_is_refused(tmp_path: Path) -> None:
    loaded = checkpoint.load(example_run())
    next(loaded.model.parameters()).data.fill_(1e6)
    with pytest.raises(CheckpointError, match="beyond half precision"):
        checkpoint.save(tmp_path / "half", loaded.model, loaded.config, loaded.info, half=True)
    assert not (tmp_path / "half").exists()


def test_index_of_the_package_is_complete() -> None:
    for name, entry in zoo.entries().items():
        assert zoo.find(f"zoo:{name}").is_dir()
        assert entry.command
