"""Foreign checkpoints: files in the layouts of the authors' own modules, built here from our layers."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothheads.checkpoint.legacy import convert, load_legacy, read_legacy
from smoothheads.errors import CheckpointError
from smoothheads.models import ModelConfig, build
from smoothheads.models.multihead import MultiHead
from smoothheads.models.networks import BasicBlock, Conv, lenet, resnet_cifar, resnet_imagenet, stage

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
CLASSES = 4


class ForeignNormalize(nn.Module):
    """Keeps its constants outside the state dict, as the foreign codes do."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.means, self.sds = (torch.tensor(v[:channels]).reshape(-1, 1, 1) for v in (MEAN, STD))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.means) / self.sds


class ForeignSome(nn.Module):
    """The SOME authors' layout: the last stage and the linear layer of each head in a Sequential."""

    def __init__(self, trunk: dict[str, nn.Module], heads: list[nn.Sequential]) -> None:
        super().__init__()
        self.order = list(trunk)
        for name, layer in trunk.items():
            self.add_module(name, layer)
        self.heads = nn.Sequential(*heads)

    def forward(self, x: Tensor) -> list[Tensor]:
        for name in self.order:
            x = self.get_submodule(name)(x)
        return [self.classify(head, x) for head in self.heads]

    @staticmethod
    def classify(head: nn.Module, x: Tensor) -> Tensor:
        """Averages as we do: another kernel for the mean of a plane rounds differently."""
        last_stage, fc = head.children()
        out: Tensor = fc(F.adaptive_avg_pool2d(last_stage(x), 1).flatten(1))
        return out


def some_cifar(heads: int) -> ForeignSome:
    trunk = {
        "conv1": Conv(3, 16, 3),
        "bn1": nn.BatchNorm2d(16),
        "relu": nn.ReLU(),
        "layer1": stage(BasicBlock, 16, 16, 1, stride=1),
        "layer2": stage(BasicBlock, 16, 32, 1, stride=2),
    }
    last = [nn.Sequential(stage(BasicBlock, 32, 64, 1, 2), nn.Linear(64, CLASSES)) for _ in range(heads)]
    return ForeignSome(trunk, last)


def some_imagenet(heads: int) -> ForeignSome:
    single = resnet_imagenet(18, (3, 32, 32), CLASSES)
    names = ["conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3"]
    last = [nn.Sequential(stage(BasicBlock, 256, 512, 2, 2), nn.Linear(512, CLASSES)) for _ in range(heads)]
    return ForeignSome({name: single.get_submodule(name) for name in names}, last)


def wrapped(net: nn.Module, channels: int = 3) -> nn.Sequential:
    return nn.Sequential(ForeignNormalize(channels), net)


def settled(model: nn.Sequential, x: Tensor) -> nn.Sequential:
    """With running statistics that matter, in evaluation mode."""
    model.train()(x)
    return model.eval()


def own(arch: str, heads: int, cut: str, shape: tuple[int, int, int] = (3, 32, 32)) -> MultiHead:
    config = ModelConfig(arch=arch, heads=heads, cut=cut)
    mean, std = MEAN[: shape[0]], STD[: shape[0]]
    return build(config, shape=shape, classes=CLASSES, mean=mean, std=std, seed=0).eval()


def images(*shape: int) -> Tensor:
    return torch.rand(2, *(shape or (3, 32, 32)), generator=torch.Generator().manual_seed(0))


def saved(folder: Path, content: object, *, old_format: bool = False) -> Path:
    path = folder / "checkpoint.pth.tar"
    torch.save(content, path, _use_new_zipfile_serialization=not old_format)
    return path


@pytest.mark.parametrize("cut", ["input", "stage2", "stage3-mid", "fc"])
@pytest.mark.parametrize("old_format", [False, True])
@torch.no_grad()
def test_cohen_cifar(tmp_path: Path, cut: str, old_format: bool) -> None:
    foreign = settled(wrapped(resnet_cifar(20, (3, 32, 32), CLASSES)), images())
    optimizer = {
        "state": {0: {"momentum_buffer": torch.ones(2)}},
        "param_groups": [{"lr": 0.1, "params": [0]}],
    }
    content = {
        "epoch": 90,
        "arch": "cifar_resnet20",
        "state_dict": foreign.state_dict(),
        "optimizer": optimizer,
    }
    model = own("resnet20", 1, cut)
    load_legacy(saved(tmp_path, content, old_format=old_format), model)
    assert torch.equal(model(images())[0], foreign(images()))


@torch.no_grad()
def test_cohen_imagenet_behind_data_parallel(tmp_path: Path) -> None:
    net = resnet_imagenet(18, (3, 32, 32), CLASSES)
    foreign = settled(wrapped(nn.DataParallel(net)), images())
    assert all(name.startswith("1.module.") for name in foreign.state_dict())
    model = own("resnet18", 1, "layer3")
    load_legacy(saved(tmp_path, {"state_dict": foreign.state_dict()}), model)
    assert torch.equal(model(images())[0], foreign(images()))


@torch.no_grad()
def test_lenet(tmp_path: Path) -> None:
    foreign = wrapped(lenet((1, 28, 28), CLASSES), channels=1).eval()
    model = own("lenet", 1, "convs", (1, 28, 28))
    load_legacy(saved(tmp_path, foreign.state_dict()), model)
    assert torch.equal(model(images(1, 28, 28))[0], foreign(images(1, 28, 28)))


@pytest.mark.parametrize("heads", [1, 3])
@torch.no_grad()
def test_some_cifar(tmp_path: Path, heads: int) -> None:
    foreign = settled(wrapped(some_cifar(heads)), images())
    assert "1.heads.0.0.0.downsample.1.running_var" in foreign.state_dict()
    model = own("resnet8", heads, "stage2")
    load_legacy(saved(tmp_path, {"state_dict": foreign.state_dict()}), model)
    assert torch.equal(model(images()), torch.stack(foreign(images())))


@torch.no_grad()
def test_some_imagenet(tmp_path: Path) -> None:
    foreign = settled(wrapped(nn.DataParallel(some_imagenet(2))), images())
    assert "1.module.heads.1.1.bias" in foreign.state_dict()
    model = own("resnet18", 2, "layer3")
    load_legacy(saved(tmp_path, {"state_dict": foreign.state_dict()}), model)
    assert torch.equal(model(images()), torch.stack(foreign(images())))


@torch.no_grad()
def test_horvath_several_networks(tmp_path: Path) -> None:
    members = [settled(wrapped(resnet_cifar(8, (3, 32, 32), CLASSES)), images()) for _ in range(3)]
    paths = []
    for k, member in enumerate(members):
        (tmp_path / str(k)).mkdir()
        paths.append(saved(tmp_path / str(k), {"state_dict": member.state_dict()}))
    model = own("resnet8", 3, "input")
    load_legacy(paths, model)
    assert torch.equal(model(images()), torch.stack([member(images()) for member in members]))
    with pytest.raises(CheckpointError, match=r"missing: heads\.2\."):
        load_legacy(paths[:2], model)


@pytest.mark.parametrize("prefix", ["", "1.", "module.", "module.1.", "1.module."])
def test_every_wrapper_comes_off(prefix: str) -> None:
    net = resnet_cifar(8, (3, 32, 32), CLASSES)
    got = convert({prefix + name: value for name, value in net.state_dict().items()}, own("resnet8", 1, "fc"))
    assert torch.equal(got["trunk.conv1.weight"], net.get_parameter("conv1.weight"))
    assert torch.equal(got["heads.0.fc.bias"], net.get_parameter("fc.bias"))
    assert got["normalize.mean"].flatten().tolist() == pytest.approx(MEAN)


def test_counters_that_old_versions_did_not_save_are_not_needed() -> None:
    state = resnet_cifar(8, (3, 32, 32), CLASSES).state_dict()
    old = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    got = convert(old, own("resnet8", 1, "stage2"))
    assert got["trunk.bn1.num_batches_tracked"].item() == 0


def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path: Path) -> None:
    model = own("resnet8", 3, "stage2")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = OrderedDict(resnet_cifar(14, (3, 32, 32), CLASSES + 1).state_dict())
    path = saved(tmp_path, state)
    with pytest.raises(CheckpointError) as caught:
        load_legacy(path, model)
    message = str(caught.value)
    assert "3 head(s)" in message
    assert "missing: heads.1.layer3.0.conv1.weight" in message
    assert "more; unexpected: heads.0.layer1.1.conv1.weight" in message
    assert "of another shape: heads.0.fc.weight, heads.0.fc.bias)" in message
    assert message.count("conv") < 10, "only the first few names"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_different_number_of_heads_is_refused() -> None:
    state = wrapped(some_cifar(3)).state_dict()
    with pytest.raises(CheckpointError, match=r"unexpected: heads\.2\."):
        convert(state, own("resnet8", 2, "stage2"))
    with pytest.raises(CheckpointError, match=r"missing: heads\.3\."):
        convert(state, own("resnet8", 4, "stage2"))
    with pytest.raises(CheckpointError, match="missing"):
        convert({}, own("resnet8", 1, "stage2"))


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        {},
        {"state_dict": {}},
        {"state_dict": [torch.ones(1)]},
        {"a": 1},
        {"a": torch.ones(2).to_sparse()},
    ],
)
def test_files_without_a_state_dict_are_refused(tmp_path: Path, content: object) -> None:
    with pytest.raises(CheckpointError, match="no state dict of tensors"):
        read_legacy(saved(tmp_path, content))


def test_missing_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="check the path"):
        read_legacy(tmp_path / "none.pth")
    path = saved(tmp_path, {"a": torch.arange(4096.0)})
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(torch.arange(1000.0, 1010.0).numpy().tobytes())] ^= 1
    for damaged in (b"", b"no checkpoint", whole[: len(whole) // 2], bytes(flipped)):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            read_legacy(path)
    path.write_bytes(whole)
    assert torch.equal(read_legacy(path)["a"], torch.arange(4096.0))


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [4, 5])
def test_a_later_pickle_protocol_is_named(tmp_path: Path, zipped: bool, protocol: int) -> None:
    path = tmp_path / "new.pth"
    state = {"fc.weight": torch.ones(2, 2)}
    torch.save(state, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"later pickle protocol.* save it again"):
        read_legacy(path)


def test_tensors_without_values_are_refused(tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.ones(2, 2, device="meta")}, tmp_path / "meta.pth")
    with pytest.raises(CheckpointError, match="no state dict of tensors"):
        read_legacy(tmp_path / "meta.pth")


@pytest.mark.parametrize("data", [b"itten in plain text", b"i", b"\x80\x02"])
def test_foreign_files_of_another_kind_are_told_so(tmp_path: Path, data: bytes) -> None:
    """torch says "105" of the first: the number of its first byte."""
    (tmp_path / "bad.pth").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"bad\.pth is not a complete file of torch\.save") as caught:
        read_legacy(tmp_path / "bad.pth")
    assert "105" not in str(caught.value).replace(str(tmp_path), "")
