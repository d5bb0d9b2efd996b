from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from smoothheads import checkpoint
from smoothheads.config import ModelConfig, RunConfig
from smoothheads.data import Splits
from smoothheads.errors import CheckpointError
from smoothheads.models import MultiHead

Network = Callable[..., MultiHead]
RUN = RunConfig(model=ModelConfig(arch="resnet8", heads=2, cut="stage2"))


@pytest.fixture
def saved(tmp_path: Path, tiny_network: Network, small_digits: Splits) -> Path:
    folder = tmp_path / "checkpoint"
    checkpoint.save(folder, tiny_network(heads=2, seed=4), RUN, small_digits.train.info)
    return folder


def test_a_checkpoint_comes_back_whole(saved: Path, tiny_network: Network, small_digits: Splits) -> None:
    ready = checkpoint.load(saved)
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(ready.model(images), tiny_network(heads=2, seed=4).eval()(images))
    assert (ready.config, ready.info) == (RUN, small_digits.train.info)
    assert not ready.model.training
    assert sorted(path.name for path in saved.iterdir()) == [
        "config.json",
        "manifest.json",
        "model.safetensors",
    ]
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["sigma"] == RUN.train.sigma
    assert manifest["preset"] == "paper"
    assert "torch" in manifest["versions"]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_one_changed_byte_is_refused_before_parsing(saved: Path, name: str) -> None:
    data = bytearray((saved / name).read_bytes())
    data[-2] ^= 1
    (saved / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name} with sha256 .* restore the original"):
        checkpoint.load(saved)


def test_missing_parts_are_named(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a checkpoint folder at .*, got none"):
        checkpoint.load(tmp_path / "nowhere")
    (saved / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="got no file"):
        checkpoint.load(saved)


def test_somebodys_own_network_needs_its_structure(
    tmp_path: Path, tiny_network: Network, small_digits: Splits
) -> None:
    run = RunConfig(model=ModelConfig(arch=checkpoint.OWN, heads=2))
    folder = tmp_path / "own"
    checkpoint.save(folder, tiny_network(heads=2, seed=1), run, small_digits.train.info)
    with pytest.raises(CheckpointError, match=r"load\(folder, model=\.\.\.\)"):
        checkpoint.load(folder)
    ready = checkpoint.load(folder, model=tiny_network(heads=2, seed=2))
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(ready.model(images), tiny_network(heads=2, seed=1).eval()(images))
    with pytest.raises(CheckpointError, match="weights of this network"):
        checkpoint.load(folder, model=tiny_network(heads=3))


def test_learned_weights_are_saved_and_belong_to_the_hash(
    tmp_path: Path, saved: Path, tiny_network: Network, small_digits: Splits
) -> None:
    model = tiny_network(heads=2, seed=4)
    model.weigh(torch.tensor([1.0, -0.5]))
    checkpoint.save(tmp_path / "weighted", model, RUN, small_digits.train.info)
    ready = checkpoint.load(tmp_path / "weighted")
    assert ready.model.ensemble_weights is not None
    assert ready.model.ensemble_weights.tolist() == [1.0, -0.5]
    assert ready.weights_hash != checkpoint.load(saved).weights_hash
    assert checkpoint.load(saved, model=ready.model).model.ensemble_weights is None


def test_weights_of_another_number_of_heads_are_refused(
    tmp_path: Path, tiny_network: Network, small_digits: Splits
) -> None:
    model = tiny_network(heads=2)
    model.ensemble_weights = torch.ones(3)
    checkpoint.save(tmp_path / "wrong", model, RUN, small_digits.train.info)
    with pytest.raises(CheckpointError, match="a finite weight for each of 2 heads"):
        checkpoint.load(tmp_path / "wrong")
