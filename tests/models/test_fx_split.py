from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothheads.errors import ConfigError
from smoothheads.models.fx_split import fx_split


class Skips(nn.Module):
    """Values from before the cut are used behind it: the input, a feature, a size and a buffer."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.fc = nn.Linear(4, 3)
        self.shift = nn.Parameter(torch.randn(4))
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: Tensor, mask: Tensor | None = None, *, flat: bool = True) -> Tensor:
        scale, shift, n = self.scale, self.shift, x.shape[0]
        x = torch.flatten(x, 1) * scale
        y = F.relu(self.first(x))
        z = self.second(y).tanh()
        if mask is not None:
            z = z * mask
        z = self.third(z + y) + x * scale + shift
        out: Tensor = self.fc(z.reshape(n, -1)) if flat else z
        return out


class Looks(nn.Module):
    """Its control flow depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) if x.sum() > 0 else x
        return out


def parameters(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_parameters()]


def images() -> Tensor:
    return torch.rand(5, 1, 2, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("cut", ["first", "second", "third"])
def test_every_value_that_is_still_needed_crosses_the_cut(cut: str) -> None:
    model = Skips()
    trunk, head = fx_split(model, cut)
    assert torch.equal(head(trunk(images())), model(images()))
    assert torch.equal(head(trunk(images()[:2])), model(images()[:2]))
    assert sorted(parameters(trunk) + parameters(head)) == sorted(parameters(model))


def test_a_parameter_lives_where_it_is_used() -> None:
    trunk, head = fx_split(Skips(), "second")
    assert parameters(trunk) == ["first.weight", "first.bias", "second.weight", "second.bias"]
    assert "shift" in parameters(head)


def test_both_sides_follow_the_mode() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.c(self.b(self.a(x)))
            return out

    model = Net().eval()
    trunk, head = fx_split(model, "a")
    head.train()
    assert head.get_submodule("b").training
    head.eval()
    assert not head.get_submodule("b").training
    assert not trunk.training, "the model's mode is kept"


def test_modules_beside_the_cut_may_do_what_they_like() -> None:
    model = nn.ModuleDict({"a": Looks(), "b": Looks()})

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.parts["b"](self.parts["a"](x))
            return out

    net = Net()
    trunk, head = fx_split(net, "parts.a")
    for x in (torch.ones(2, 4), -torch.ones(2, 4)):
        assert torch.equal(head(trunk(x)), net(x))


def test_a_submodule_that_is_called_twice_belongs_to_the_trunk() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.b(self.a(self.a(x)) + x)
            return out

    model = Net()
    trunk, head = fx_split(model, "a")
    assert parameters(head) == ["b.weight", "b.bias"]
    x = torch.randn(2, 4)
    assert torch.equal(head(trunk(x)), model(x))


def test_control_flow_on_data_is_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"TraceError.*head_factory"):
        fx_split(Looks(), "layer")


def test_a_forward_that_trains_differently_is_refused() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.b(F.dropout(self.a(x), 0.5, self.training))
            return out

    with pytest.raises(ConfigError, match=r"self\.training.*nn\.Dropout"):
        fx_split(Net(), "a")


def test_a_submodule_that_is_never_called_is_refused() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.unused = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.a(x)
            return out

    with pytest.raises(ConfigError, match="calls 'unused'"):
        fx_split(Net(), "unused")
