from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from smoothheads.certify.engines.torch import fold_batch_norm
from smoothheads.models import ModelConfig, build
from smoothheads.models.cut import multihead
from smoothheads.models.multihead import MultiHead

SHAPE = (1, 8, 8)
X = torch.linspace(-1, 2, 3 * 64).reshape(3, *SHAPE)


def norms(model: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def heads_of(*layers: nn.Module) -> MultiHead:
    return MultiHead(nn.Identity(), [nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(4))])


def moved(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """One that has something to fold."""
    for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        assert tensor is not None
        tensor.data.uniform_(0.5, 2, generator=torch.Generator().manual_seed(tensor.numel()))
    return norm


def ready(model: MultiHead) -> MultiHead:
    model.eval()
    with torch.no_grad():
        model(X)
    return model


def test_a_multi_head_resnet_has_no_norm_left_and_the_same_logits(
    trained_like: Callable[..., MultiHead],
) -> None:
    model = trained_like(heads=3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    lean = fold_batch_norm(model, SHAPE)
    assert lean is not None
    assert norms(lean) == 0
    assert norms(model) > 0
    with torch.no_grad():
        torch.testing.assert_close(lean(X), model(X), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_large_resnets_too(arch: str) -> None:
    config = ModelConfig(arch=arch, heads=2, cut="layer3")
    model = build(config, shape=(3, 32, 32), classes=3, mean=(0.5,) * 3, std=(0.2,) * 3, seed=0).eval()
    lean = fold_batch_norm(model, (3, 32, 32))
    assert lean is not None
    assert norms(lean) == 0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.bn1 = moved(nn.BatchNorm2d(4))
        self.conv2 = nn.Conv2d(4, 4, 3)
        self.bn2 = moved(nn.BatchNorm2d(4))
        self.fc = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        out: Tensor = self.fc(x.mean((2, 3)))
        return out


def test_a_network_that_was_cut_with_fx() -> None:
    model = multihead(Net(), "bn1", 2).eval()
    lean = fold_batch_norm(model, SHAPE)
    assert lean is not None
    assert norms(lean) == 0
    with torch.no_grad():
        torch.testing.assert_close(lean(X), model(X), rtol=1e-4, atol=1e-5)


class LooksAtTheData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(1, 2, 3), moved(nn.BatchNorm2d(2)))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x) if x.sum() > 0 else self.inner(-x)
        return out


def test_code_that_cannot_be_traced_is_folded_inside() -> None:
    model = ready(heads_of(LooksAtTheData()))
    lean = fold_batch_norm(model, SHAPE)
    assert lean is not None
    assert norms(lean) == 0
    for x in (X, -X):
        torch.testing.assert_close(lean(x), model(x), rtol=1e-4, atol=1e-5)


class Reads(nn.Module):
    """The convolution's output is read twice, so its norm cannot be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(1, 2, 3), moved(nn.BatchNorm2d(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        out: Tensor = y + self.bn(y)
        return out


class Twice(nn.Module):
    """One norm behind two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.bn = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3), moved(nn.BatchNorm2d(2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn(self.a(x)) + self.bn(self.b(x))
        return out


class Backwards(nn.Module):
    """Listed one after the other, but used the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(1, 1, 3), moved(nn.BatchNorm2d(1))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(self.bn(x))
        return out


class OwnConvolution(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).square()


def hooked() -> nn.Sequential:
    part = nn.Sequential(nn.Conv2d(1, 2, 3), moved(nn.BatchNorm2d(2)))
    part[0].register_forward_hook(lambda *args: args[-1] * 2)
    return part


@pytest.mark.parametrize(
    "part",
    [
        Reads(),
        Twice(),
        Backwards(),
        nn.Sequential(OwnConvolution(1, 2, 3), moved(nn.BatchNorm2d(2))),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False)),
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 2, 3)), moved(nn.BatchNorm2d(2))),
        hooked(),
        nn.Conv2d(1, 2, 3),
    ],
    ids=["reads", "twice", "backwards", "own", "batch statistics", "parametrized", "hooked", "no norm"],
)
def test_what_cannot_be_folded_is_left_alone(part: nn.Module) -> None:
    assert fold_batch_norm(ready(heads_of(part)), SHAPE) is None


def test_folding_that_would_move_the_logits_is_not_done() -> None:
    """Folded, the weights overflow; apart, tanh saturates."""
    conv, norm = nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2, eps=0)
    conv.weight.data.fill_(1e20)
    norm.running_var = torch.full((2,), 1e-38)
    norm.weight.data.fill_(1e10)
    norm.running_mean = torch.full((2,), 9e20)
    model = heads_of(conv, norm, nn.Tanh())
    assert fold_batch_norm(ready(model), SHAPE) is None
