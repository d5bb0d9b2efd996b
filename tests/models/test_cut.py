from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothheads.errors import ConfigError
from smoothheads.models.aggregate import ensemble
from smoothheads.models.cut import example_for, fx_split, multihead, reset
from smoothheads.models.multihead import MultiHead, Normalize
from smoothheads.models.networks import resnet_cifar

CLASSES = 3


class Dense(nn.Module):
    """Each layer sees all earlier ones; sums are written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = (nn.Conv2d(2 * k, 2, 3, padding=1) for k in (1, 2, 3))
        self.norm = nn.BatchNorm2d(2)
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.conv1(x))
        z = self.norm(self.conv2(torch.cat([x, y], 1)))
        z += y
        w = self.conv3(torch.cat([x, y, z], 1))
        out: Tensor = self.fc(torch.cat([y, z, w], 1).mean((2, 3)))
        return out


class Attention(nn.Module):
    """Tokens, a class token, positions and an optional mask, as vision transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(2, 4)
        self.token, self.position = nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(torch.randn(17, 4))
        self.block1, self.block2 = (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True) for _ in range(2))
        self.fc = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        tokens = self.embed(x.flatten(2).transpose(1, 2))
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), tokens], 1) + self.position
        tokens = self.block2(self.block1(tokens, attn_mask), attn_mask)
        out: Tensor = self.fc(tokens[:, 0])
        return out


def sequential() -> nn.Sequential:
    """The layer behind the first one writes in place, and not idempotently."""
    layers = [nn.Conv2d(2, 4, 3), nn.Hardswish(inplace=True), nn.BatchNorm2d(4), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(16, CLASSES))


def images(n: int = 4) -> Tensor:
    return torch.rand(n, 2, 4, 4, generator=torch.Generator().manual_seed(1))


def logits(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = model.eval()(x)
    return out


def trained(model: nn.Module) -> nn.Module:
    """With running statistics that matter."""
    model.train()(images())
    return model


CASES = [
    (lambda: resnet_cifar(14, (2, 4, 4), CLASSES), "stage3-mid"),
    (sequential, "0"),
    (sequential, 2),
    (sequential, "input"),
    (lambda: nn.Sequential(sequential()[:3], sequential()[3:]), "0.1"),
    (Dense, "conv1"),
    (Dense, "norm"),
    (Attention, "embed"),
    (Attention, "block1"),
    (Attention, "input"),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("model_of", "cut"), CASES)
def test_the_split_network_is_the_network(model_of: type[nn.Module], cut: str | int) -> None:
    model = trained(model_of())
    network = multihead(model, cut, 3, example=images(), reinit=False)
    expected = logits(model, images())
    for logits_NC in logits(network, images()):
        assert torch.equal(logits_NC, expected)
    torch.testing.assert_close(ensemble(logits(network, images())), expected.double())


@pytest.mark.parametrize(("model_of", "cut"), CASES)
def test_trained_heads_go_their_own_ways(model_of: type[nn.Module], cut: str | int) -> None:
    network = multihead(trained(model_of()), cut, 3, example=images(), reinit=False).train()
    before = logits(network, images())
    logits_LNC = network.train()(images())
    logits_LNC[1].square().sum().backward()
    with torch.no_grad():
        for parameter in network.heads[1].parameters():
            parameter.sub_(0.1 * torch.ones_like(parameter))
    after = logits(network, images())
    assert not torch.equal(after[1], before[1])
    assert torch.equal(after[0], after[2])


@pytest.mark.parametrize(
    ("model_of", "cut"), [case for case in CASES if not (case[0] is Attention and case[1] != "block1")]
)
def test_new_heads_are_drawn_from_the_seed(model_of: type[nn.Module], cut: str | int) -> None:
    model = trained(model_of())
    kept = copy.deepcopy(model.state_dict())
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    one = multihead(model, cut, 2, example=images(), seed=1)
    assert torch.equal(torch.rand(2), expected), "the global generator was disturbed"
    same, other = (multihead(model, cut, 2, example=images(), seed=seed) for seed in (1, 2))
    assert torch.equal(logits(one, images()), logits(same, images()))
    assert not torch.equal(logits(one, images()), logits(other, images()))
    first, second = logits(one, images())
    assert not torch.equal(first, second)
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())


def test_own_networks_keep_their_initial_distribution() -> None:
    model = resnet_cifar(8, (2, 8, 8), CLASSES)
    weight = multihead(model, "stage2", 2).heads[1].get_parameter("layer3.0.conv2.weight")
    assert weight.var().item() == pytest.approx(2 / (9 * 64), rel=0.05)


def test_the_normalisation_comes_first() -> None:
    model = trained(sequential())
    network = multihead(
        model, 0, 1, example=images(), reinit=False, normalize=Normalize([0.5, 0.5], [0.5, 0.5])
    )
    assert torch.equal(logits(network, images())[0], logits(model, (images() - 0.5) / 0.5))


def test_weights_on_both_sides_of_the_cut_are_refused() -> None:
    layer = nn.Linear(4, 4)
    tied = nn.Sequential(nn.Flatten(), nn.Linear(32, 4), layer, nn.ReLU(), layer)
    with pytest.raises(ConfigError, match=r"tied '4\.weight'"):
        multihead(tied, "2", 2)
    norm = nn.BatchNorm1d(32, affine=False)
    with pytest.raises(ConfigError, match="tied '2'"):
        multihead(nn.Sequential(nn.Flatten(), norm, norm, nn.Linear(32, 2)), "1", 2)


def test_a_cut_behind_everything_is_refused() -> None:
    with pytest.raises(ConfigError, match="no parameter behind the cut"):
        multihead(sequential(), "4", 2)
    with pytest.raises(ConfigError, match="no parameter behind the cut"):
        multihead(Dense(), "fc", 2)


def test_unknown_cuts_are_refused() -> None:
    with pytest.raises(ConfigError, match="'conv1'"):
        multihead(Dense(), "conv_1", 2)
    with pytest.raises(ConfigError, match="submodule"):
        multihead(Dense(), 1, 2)
    with pytest.raises(ConfigError, match="from 0 to 4"):
        multihead(sequential(), 5, 2)
    with pytest.raises(ConfigError, match="heads >= 1"):
        multihead(Dense(), "conv1", 0)


class Looks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 4, 3), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if y.mean() > 0:
            y = -y
        out: Tensor = self.fc(y.mean((2, 3)))
        return out


def test_what_cannot_be_traced_is_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"sh\.MultiHead\(trunk, heads\)"):
        multihead(Looks(), "conv", 2)
    network = multihead(Looks(), "input", 2, example=images(), reinit=False)
    assert isinstance(network, MultiHead)


def test_a_network_that_does_not_return_logits_is_refused() -> None:
    class Pair(Dense):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            y = self.conv1(x)
            return y, y

    with pytest.raises(ConfigError, match=r"logits \[N, C\], not tuple"):
        multihead(Pair(), "input", 1, example=images())
    with pytest.raises(ConfigError, match=r"not a tensor \[4, 2, 4, 4\]"):
        multihead(nn.Sequential(nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1)), 0, 1, example=images())


def test_a_head_that_overwrites_the_shared_features_is_refused() -> None:
    class Overwrites(Dense):
        def forward(self, x: Tensor) -> Tensor:
            y = self.conv1(x)
            y.add_(1)
            out: Tensor = self.fc(torch.cat([y, y, y], 1).mean((2, 3)))
            return out

    multihead(Overwrites(), "conv1", 1, example=images())
    with pytest.raises(ConfigError, match=r"of head 2.*in place"):
        multihead(Overwrites(), "conv1", 2, example=images())
    with pytest.raises(ConfigError, match=r"of head 2.*in place"):
        multihead(Overwrites(), "conv1", 2)  # checked also without an example


def test_batch_norm_without_running_statistics_is_refused() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten(), nn.Linear(8, 3)
    )
    with pytest.raises(ConfigError, match=r"'1' has no running statistics.*rest of the batch"):
        multihead(model, 0, 2)


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


def test_layers_that_mix_samples_give_a_warning() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(32, 4), Centred(), nn.Linear(4, CLASSES))
    with pytest.warns(UserWarning, match="depends on the rest of the batch"):
        multihead(model, 1, 2, example=images(), reinit=False)
    with warnings.catch_warnings(action="error"):
        multihead(model[:2], 0, 2, example=images(), reinit=False)


def test_parameters_without_a_reset_need_an_initialiser() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.gain

    model = nn.Sequential(nn.Flatten(), nn.Linear(32, 4), Scale(), nn.Linear(4, CLASSES))
    with pytest.raises(ConfigError, match=r"'gain' of Scale.*reinit=False"):
        multihead(model, 1, 2, example=images())

    def initialise(head: nn.Module) -> None:
        for parameter in head.parameters():
            nn.init.normal_(parameter)

    with pytest.raises(ConfigError, match="'token' of GraphModule"):
        multihead(Attention(), "embed", 2, example=images())

    network = multihead(model, 1, 2, example=images(), reinit=initialise)
    gains = [head.get_parameter("2.gain") for head in network.heads]
    assert not torch.equal(gains[0], gains[1])


def test_reset_forgets_running_statistics() -> None:
    model = trained(sequential())
    reset(model)
    mean = model.get_buffer("2.running_mean")
    assert torch.equal(mean, torch.zeros(4))


def test_nothing_is_shared_with_the_original() -> None:
    model = Dense()
    kept = {id(p) for p in model.parameters()}
    for reinit in (True, False):
        assert not kept & {id(p) for p in multihead(model, "norm", 2, reinit=reinit).parameters()}


def test_an_example_is_asked_for_where_none_can_be_guessed() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.last = nn.Embedding(3, 4), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.table(x.long()).mean((1, 2, 3)))
            return out

    with pytest.raises(ConfigError, match="pass a batch of its images as `example`"):
        multihead(Words(), "table", 2)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 5, 5)])
def test_a_flat_network_is_guessed(shape: tuple[int, int, int]) -> None:
    width = shape[0] * shape[1] * shape[2]
    model = nn.Sequential(nn.Flatten(), nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, 3))
    assert example_for(model).shape == (3, *shape)
    assert multihead(model, 1, 2)(torch.rand(4, *shape)).shape == (2, 4, 3)


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


class Branches(nn.Module):
    """Its control flow depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) if x.sum() > 0 else x
        return out


def parameters(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_parameters()]


def small_images() -> Tensor:
    return torch.rand(5, 1, 2, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("cut", ["first", "second", "third"])
def test_every_value_that_is_still_needed_crosses_the_cut(cut: str) -> None:
    model = Skips()
    trunk, head = fx_split(model, cut)
    assert torch.equal(head(trunk(small_images())), model(small_images()))
    assert torch.equal(head(trunk(small_images()[:2])), model(small_images()[:2]))
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
    model = nn.ModuleDict({"a": Branches(), "b": Branches()})

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
    with pytest.raises(ConfigError, match=r"TraceError.*sh\.MultiHead"):
        fx_split(Branches(), "layer")


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

    with pytest.raises(ConfigError, match="never calls 'unused'"):
        fx_split(Net(), "unused")
