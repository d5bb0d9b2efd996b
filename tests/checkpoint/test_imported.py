from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from smoothheads import checkpoint
from smoothheads.checkpoint.legacy import import_weights
from smoothheads.data import describe, named
from smoothheads.errors import CheckpointError, ConfigError, StorageError
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import Normalize
from smoothheads.models.networks import resnet_cifar
from smoothheads.training import RunConfig, TrainConfig

RUN = RunConfig(
    data=named("cifar10"),
    model=ModelConfig(arch="resnet8", heads=1, cut="stage2"),
    train=TrainConfig(sigma=0.5),
)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def foreign(seed: int, std: Sequence[float] = STD) -> nn.Sequential:
    """A network with running statistics that matter, as Cohen wraps it."""
    torch.manual_seed(seed)
    net = nn.Sequential(Normalize(MEAN, std), resnet_cifar(8, (3, 32, 32), 10))
    net.train()(images())
    return net.eval()


def images() -> Tensor:
    return torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def saved(path: Path, net: nn.Sequential) -> Path:
    state = {name: value for name, value in net.state_dict().items() if name.startswith("1.")}
    torch.save({"epoch": 90, "arch": "resnet", "state_dict": state}, path)
    return path


@torch.no_grad()
def test_a_single_network(tmp_path: Path) -> None:
    net = foreign(1)
    file = saved(tmp_path / "one.pth.tar", net)
    ready = checkpoint.load(import_weights([file], RUN, tmp_path / "out"))
    assert torch.equal(ready.model(images())[0], net(images()))
    assert (ready.config, ready.info) == (RUN, describe(RUN.data))
    sha = hashlib.sha256(file.read_bytes()).hexdigest()
    assert ready.manifest["imported"] == [{"file": "one.pth.tar", "sha256": sha}]


@torch.no_grad()
def test_several_networks_become_heads(tmp_path: Path) -> None:
    nets = [foreign(seed) for seed in (1, 2, 3)]
    files = [saved(tmp_path / f"{k}.pth", net) for k, net in enumerate(nets)]
    run = replace(RUN, model=ModelConfig(arch="resnet8", heads=3, cut="input"))
    ready = checkpoint.load(import_weights(files, run, tmp_path / "out"))
    assert torch.equal(ready.model(images()), torch.stack([net(images()) for net in nets]))


@torch.no_grad()
def test_centring_without_scaling(tmp_path: Path) -> None:
    net = foreign(1, std=(1.0, 1.0, 1.0))
    file = saved(tmp_path / "one.pth", net)
    ready = checkpoint.load(import_weights([file], RUN, tmp_path / "out", centre_only=True))
    assert torch.equal(ready.model(images())[0], net(images()))
    assert ready.info.std == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("heads", "cut", "got"), [(2, "stage2", "2 head(s) and the cut 'stage2'"), (1, "input", "1 head(s)")]
)
def test_several_files_are_separate_networks(tmp_path: Path, heads: int, cut: str, got: str) -> None:
    files = [saved(tmp_path / f"{k}.pth", foreign(k)) for k in range(2)]
    run = replace(RUN, model=ModelConfig(arch="resnet8", heads=heads, cut=cut))
    with pytest.raises(ConfigError) as caught:
        import_weights(files, run, tmp_path / "out")
    assert got in str(caught.value)


def test_what_cannot_be_imported_leaves_nothing(tmp_path: Path) -> None:
    file, out = saved(tmp_path / "one.pth", foreign(0)), tmp_path / "out"
    with pytest.raises(ConfigError, match="Name at least one"):
        import_weights([], RUN, out)
    with pytest.raises(CheckpointError, match=r"missing: trunk\.layer1\.1"):
        import_weights([file], replace(RUN, model=replace(RUN.model, arch="resnet14")), out)
    assert not out.exists()


def test_a_folder_in_use_is_not_replaced(tmp_path: Path) -> None:
    file = saved(tmp_path / "one.pth", foreign(0))
    with pytest.raises(StorageError, match="a new or empty folder"):
        import_weights([file], RUN, tmp_path)
    assert file.exists()
    (tmp_path / "empty").mkdir()
    assert checkpoint.load(import_weights([file], RUN, tmp_path / "empty"))
