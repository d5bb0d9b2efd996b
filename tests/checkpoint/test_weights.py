from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import smoothheads as sh
from smoothheads import checkpoint
from smoothheads.data import Splits, load_test
from smoothheads.errors import CheckpointError, DataError
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.training import RunConfig
from smoothheads.training.loop import TrainState

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
    with pytest.raises(CheckpointError, match=f"{name} has another sha256 .* restore the original"):
        checkpoint.load(saved)


def test_missing_parts_are_named(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="There is no checkpoint in"):
        checkpoint.load(tmp_path / "nowhere")
    (saved / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing"):
        checkpoint.load(saved)


def test_somebodys_own_network_needs_its_structure(
    tmp_path: Path, tiny_network: Network, small_digits: Splits
) -> None:
    run = RunConfig(model=ModelConfig(arch="own", heads=2))
    folder = tmp_path / "own"
    checkpoint.save(folder, tiny_network(heads=2, seed=1), run, small_digits.train.info)
    with pytest.raises(CheckpointError, match=r"load_checkpoint\(folder, model=\.\.\.\)"):
        checkpoint.load(folder)
    ready = checkpoint.load(folder, model=tiny_network(heads=2, seed=2))
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(ready.model(images), tiny_network(heads=2, seed=1).eval()(images))
    with pytest.raises(CheckpointError, match="do not fit the network"):
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
    with pytest.raises(CheckpointError, match="do not fit 2 heads"):
        checkpoint.load(tmp_path / "wrong")


def test_a_checkpoint_of_ones_own_network_says_what_was_trained(tmp_path: Path, small_digits: Splits) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    trained = sh.train(net, small_digits.train, sigma=0.7, epochs=1, method="stability", on_event=None)
    sh.save_checkpoint(str(tmp_path / "own"), trained)
    ready = sh.load_checkpoint(str(tmp_path / "own"), nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(ready.model(images)[0], net(images))
    assert (ready.config.model.arch, ready.config.data.name) == ("own", "in-memory")
    assert (ready.config.train.sigma, ready.config.objective.method.name) == (0.7, "stability")
    assert ready.info == small_digits.train.info
    assert ready.manifest["sigma"] == 0.7
    assert ready.manifest["metrics"]["epoch"] == 1
    with pytest.raises(DataError, match="were passed in Python and cannot be read again"):
        load_test(ready.config.data)


def test_a_built_network_keeps_its_name(tmp_path: Path, tiny_network: Network, small_digits: Splits) -> None:
    trained = sh.train(tiny_network(heads=2), small_digits.train, sigma=0.5, epochs=1, on_event=None)
    sh.save_checkpoint(tmp_path / "named", trained)
    assert sh.load_checkpoint(tmp_path / "named").config.model == RUN.model


def test_a_description_of_another_network_is_refused(
    tmp_path: Path, tiny_network: Network, small_digits: Splits
) -> None:
    own = sh.MultiHead(nn.Flatten(), [nn.Linear(64, 10)])
    info = small_digits.train.info
    with pytest.raises(CheckpointError, match=r"than the one to save \(a module of your own\)"):
        sh.save_checkpoint(tmp_path / "own", own, RunConfig(), info)
    with pytest.raises(CheckpointError, match="describes another network"):
        sh.save_checkpoint(tmp_path / "built", tiny_network(heads=3), RUN, info)
    with pytest.raises(CheckpointError, match="does not say how it was trained"):
        sh.save_checkpoint(tmp_path / "bare", own)
    assert not list(tmp_path.iterdir())


def test_state_comes_back_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    tensors = {"a": torch.randn(3, 4).to(memory_format=torch.contiguous_format), "b": torch.tensor(7)}
    meta = {"epoch": 3, "meter": {"sums": {"loss": [0.1 + 0.2, 1e-300]}}}
    checkpoint.save_state(path, TrainState(tensors, meta), metrics_size=12)
    state, facts = checkpoint.load_state(path)
    assert all(torch.equal(state.tensors[name], tensors[name]) for name in tensors)
    assert state.meta == meta
    assert facts == {"metrics_size": 12}


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    checkpoint.save_state(path, TrainState({"a": torch.ones(100)}, {}))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CheckpointError, match=r"is not a training state .* without --resume"):
        checkpoint.load_state(path)
