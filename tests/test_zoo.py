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
from benchmarks import enter_zoo
from smoothheads import checkpoint, hub, zoo
from smoothheads.cli import main
from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.files import sha256
from smoothheads.runs.models import is_export, open_model


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo of one classifier; returns its folder."""
    (tmp_path / "zoo.json").write_text("[]")
    monkeypatch.setattr(zoo, "INDEX", tmp_path / "zoo.json")
    monkeypatch.setattr(zoo, "PACKAGE", tmp_path / "package")
    monkeypatch.setattr(zoo, "CHECKOUT", tmp_path / "zoo")
    return enter_zoo.enter(example_export(), "digits-tiny", command="smoothheads train digits", cost="5 s")


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


def test_zoo_lists_metrics_size_cost_and_command(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo"]) == 0
    shown = capsys.readouterr().out
    facts = json.loads((tiny / "export.json").read_bytes())["summary"]
    row = next(line for line in shown.splitlines() if line.startswith("zoo:digits-tiny "))
    accuracies = [f"{each['value']:.1%}" for each in facts["certified"]]
    size = sum(path.stat().st_size for path in tiny.rglob("*") if path.is_file())
    acr = f"{facts['acr']['value']:.3f}"
    assert row.split() == [
        "zoo:digits-tiny",
        "digits",
        "0.25",
        "6",
        acr,
        *accuracies,
        f"{size / 1e6:.1f}",
        "5",
        "s",
    ]
    assert "zoo:digits-tiny was trained by: smoothheads train digits\n" in shown
    assert main(["zoo", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["size"] == size
    shutil.rmtree(tiny)  # as after the installation of a wheel, which has the index and some of the files
    assert main(["zoo"]) == 0
    assert "Its files are in a checkout of the repository only." in capsys.readouterr().out


@pytest.mark.usefixtures("tiny")
def test_bare_checkpoint_is_entered_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What CONTRIBUTING says; the index vouches for manifest.json, which vouches for the weights."""
    folder = enter_zoo.enter(
        example_export() / "checkpoint", "digits-bare", command="smoothheads train digits"
    )
    assert zoo.entries()["digits-bare"].cost == "0.0 h"
    assert sh.load_checkpoint("zoo:digits-bare").info.classes == 10
    assert enter_zoo.enter(folder, "digits-bare", command="again") == folder  # is only entered again
    assert zoo.entries()["digits-bare"].command == "again"
    assert main(["zoo"]) == 0
    assert "It was never certified" in capsys.readouterr().out
    (folder / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"config\.json of zoo:digits-bare is missing or has"):
        sh.load_checkpoint("zoo:digits-bare")
    with pytest.raises(CheckpointError, match="neither an export nor a checkpoint"):
        enter_zoo.enter(tmp_path, "nothing", command="")


@pytest.mark.usefixtures("tiny")
def test_networks_of_the_wheel_need_no_extra(tmp_path: Path) -> None:
    export = Path(shutil.copytree(example_export(), tmp_path / "export"))
    facts = (export / "export.json").read_text().replace('"engine": "torch"', '"engine": "openvino"')
    (export / "export.json").write_text(facts)
    lines = [line for line in (export / "SHA256SUMS").read_text().splitlines() if "export.json" not in line]
    lines.append(f"{sha256(export / 'export.json')}  export.json")
    (export / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    with pytest.raises(CheckpointError, match="certify with --engine torch, or leave out"):
        enter_zoo.enter(export, "digits-extra", command="train", wheel=True)
    assert enter_zoo.enter(export, "digits-extra", command="train").is_dir()


@pytest.mark.usefixtures("tiny")
def test_wheel_has_room_for_five_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = enter_zoo.enter(example_export(), "digits-wheel", command="train", wheel=True)
    assert folder == zoo.PACKAGE / "digits-wheel"
    assert sh.load_checkpoint("zoo:digits-wheel").info.classes == 10
    monkeypatch.setattr(enter_zoo, "WHEEL", zoo.entries()["digits-wheel"].size + 1000)
    with pytest.raises(CheckpointError, match="leave out --wheel"):
        enter_zoo.enter(example_export(), "digits-second", command="train", wheel=True)


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


def test_networks_of_the_repository_open_and_pass_the_audit() -> None:
    """Their ledgers are read by this very version, row by row, and belong to the network beside them."""
    for name in zoo.entries():
        folder = hub.local(f"zoo:{name}")
        if is_export(folder):
            open_model(folder)
            assert sh.audit(folder / "ledger").findings == ()
        else:
            sh.load_checkpoint(folder)


def test_index_of_the_repository_is_complete() -> None:
    known = zoo.entries()
    for name, entry in known.items():
        folder = zoo.find(f"zoo:{name}")
        assert entry.command
        assert entry.size == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    folders = [path for root in (zoo.PACKAGE, zoo.CHECKOUT) if root.is_dir() for path in root.iterdir()]
    assert {path.name for path in folders} == known.keys()
    assert sum(known[path.name].size for path in folders if path.parent == zoo.PACKAGE) <= enter_zoo.WHEEL


def test_denoiser_restores_images_and_is_no_classifier() -> None:
    denoiser = sh.load_checkpoint("zoo:denoiser").model.heads[0]
    clean = torch.full((1, 3, 32, 32), 0.5)
    noisy = clean + 0.25 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        restored = denoiser(noisy, 0.25)
    assert (restored - clean).square().mean() < 0.1 * (noisy - clean).square().mean()
    with pytest.raises(ConfigError, match="is a denoiser and no classifier"):
        sh.from_pretrained("zoo:denoiser")
