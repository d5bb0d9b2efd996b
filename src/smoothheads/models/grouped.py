"""The heads of a ResNet side by side: one grouped convolution does what a loop over L heads does.

What all heads read (the trunk's output, or the image) goes through one dense convolution with the outputs of
all heads; from there on head k owns the k-th group of channels. Every tensor is the concatenation of the
heads' tensors along the first dimension, so nothing is lost either way. Logits, gradients and BatchNorm's
statistics are those of the loop up to rounding, since another kernel may add in another order: certify and
deploy the same form.
"""

from __future__ import annotations

import copy
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor, nn

from smoothheads.errors import ConfigError
from smoothheads.models.layers import BasicBlock, Bottleneck, Conv
from smoothheads.models.mode import borrowed_mode
from smoothheads.models.multihead import MultiHead

State = dict[str, Tensor]
CHANNELWISE: Final = (nn.ReLU, nn.MaxPool2d, nn.AdaptiveAvgPool2d, nn.Flatten)
READ_THE_INPUT: Final = ("conv1", "downsample")  # of a block
GAIN: Final = 0.97  # share of the loop's time; above it, the clock may be wrong


class GroupedMultiHead(nn.Module):
    """Logits [L, N, C] like those of the MultiHead that `group` took; `ungroup` gives it back."""

    ensemble_weights: Tensor | None

    def __init__(self, normalize: nn.Module, trunk: nn.Module, head: nn.Module, count: int) -> None:
        """`head` is one of the `count` heads, without storage; the grouped layers have none yet either."""
        super().__init__()
        self.normalize, self.trunk, self.count = normalize, trunk, count
        self.grouped = _grouped_head(head, count)
        self.register_buffer("ensemble_weights", None)
        self._head = (head,)  # in a tuple, so that it is no submodule

    def forward(self, x_NCHW: Tensor) -> Tensor:
        logits_LNC: Tensor = self.grouped(self.trunk(self.normalize(x_NCHW)))
        return logits_LNC

    @property
    def head(self) -> nn.Module:
        """The structure of one head, without storage."""
        return self._head[0]


def group(model: MultiHead) -> GroupedMultiHead:
    """A copy with grouped heads. Raises ConfigError for heads that are not those of our ResNets."""
    if len({repr(head) for head in model.heads}) > 1:
        raise ConfigError("heads of one structure to group", "several", "keep the loop over the heads")
    head = copy.deepcopy(model.heads[0]).to("meta")
    trunk, normalize = copy.deepcopy(model.trunk), copy.deepcopy(model.normalize)
    grouped = GroupedMultiHead(normalize, trunk, head, len(model.heads))
    grouped.ensemble_weights = copy.deepcopy(model.ensemble_weights)
    grouped.load_state_dict(group_state(model.state_dict(), len(model.heads)), assign=True)
    return grouped.train(model.training)


def ungroup(model: GroupedMultiHead) -> MultiHead:
    """A copy as a loop over the heads, with the same values to the bit."""
    heads = [copy.deepcopy(model.head) for _ in range(model.count)]
    loop = MultiHead(copy.deepcopy(model.trunk), heads, copy.deepcopy(model.normalize))
    loop.ensemble_weights = copy.deepcopy(model.ensemble_weights)
    loop.load_state_dict(ungroup_state(model.state_dict(), model.count), assign=True)
    return loop.train(model.training)


def group_state(state: Mapping[str, Tensor], heads: int) -> State:
    """A MultiHead's state dict as that of the grouped network."""
    first = "heads.0."
    shared = {name: value.clone() for name, value in state.items() if not name.startswith("heads.")}
    names = [name.removeprefix(first) for name in state if name.startswith(first)]
    parts = {name: [state[f"heads.{k}.{name}"] for k in range(heads)] for name in names}
    return shared | {
        f"grouped.{name}": torch.cat(values) if values[0].ndim else torch.stack(values)
        for name, values in parts.items()
    }


def ungroup_state(state: Mapping[str, Tensor], heads: int) -> State:
    """A grouped network's state dict as that of the MultiHead."""
    loop = {name: value.clone() for name, value in state.items() if not name.startswith("grouped.")}
    for name in (name for name in state if name.startswith("grouped.")):
        counter = name.endswith("num_batches_tracked")
        parts = state[name].unbind() if counter else state[name].chunk(heads)
        own = name.removeprefix("grouped.")
        loop |= {f"heads.{k}.{own}": part.clone() for k, part in enumerate(parts)}
    return loop


def faster_heads(
    model: MultiHead,
    shape: tuple[int, int, int],
    batch: int,
    *,
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> MultiHead | GroupedMultiHead:
    """The form that evaluates `batch` images in less time here and now: the model itself, unless it can be
    grouped and that saves at least 3 %. Costs `2 * repeats + 2` forward passes."""
    try:
        forms = (model, group(model))
    except ConfigError:
        return model
    like = next(model.parameters())
    x = torch.zeros(batch, *shape, device=like.device, dtype=like.dtype)
    x = x.contiguous(memory_format=torch.channels_last)
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):  # in turns, so that a busy moment hits both; the first turn warms up
        for form, times in zip(forms, seconds, strict=True):
            times.append(_timed(form, x, clock))
    loop, grouped = (min(times[1:]) for times in seconds)
    return forms[1] if grouped < GAIN * loop else model


@torch.inference_mode()
def _timed(model: nn.Module, x: Tensor, clock: Callable[[], float]) -> float:
    with borrowed_mode(model, training=False):
        started = clock()
        model(x).sum().item()  # waits for the device
        return clock() - started


class HeadsLinear(nn.Module):
    """The heads' linear layers: features [N, F] that all read, or [N, L * F], to logits [L, N, C]."""

    def __init__(self, layer: nn.Linear, heads: int, *, shared: bool) -> None:
        super().__init__()
        self.heads, self.shared = heads, shared
        self.weight = nn.Parameter(_empty(layer.weight, heads))
        self.bias = nn.Parameter(_empty(layer.bias, heads))

    def forward(self, x: Tensor) -> Tensor:
        own_NLF = x.reshape(len(x), 1 if self.shared else self.heads, -1).expand(-1, self.heads, -1)
        weight_LCF = self.weight.view(self.heads, -1, self.weight.shape[1])
        bias_L1C = self.bias.view(self.heads, 1, -1)
        return torch.baddbmm(bias_L1C, own_NLF.transpose(0, 1), weight_LCF.transpose(1, 2))


class Repeat(nn.Module):
    """The shortcut of a block whose input all heads share."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return x_NCHW.repeat(1, self.heads, 1, 1)


def _grouped_head(head: nn.Module, heads: int) -> nn.Module:
    if type(head) is not nn.Sequential:
        raise _refused(type(head).__name__)
    linear = [module for module in head.modules() if isinstance(module, nn.Linear)]
    if len(linear) != 1 or head[-1] is not linear[0] or linear[0].bias is None:
        raise _refused("one that does not end in its only linear layer")
    return _sequence(head, heads, shared=True)


def _sequence(layers: nn.Module, heads: int, *, shared: bool) -> nn.Sequential:
    grouped: OrderedDict[str, nn.Module] = OrderedDict()
    for name, layer in layers.named_children():
        grouped[name] = _grouped(layer, heads, shared=shared)
        shared = shared and type(layer) in CHANNELWISE
    return nn.Sequential(grouped)


def _grouped(layer: nn.Module, heads: int, *, shared: bool) -> nn.Module:
    """The layer for all heads at once; with `shared` its input is what all heads read."""
    kind = type(layer)
    if kind in CHANNELWISE:
        return copy.deepcopy(layer)
    if kind is nn.Identity:
        return Repeat(heads) if shared else nn.Identity()
    if kind is nn.Sequential:
        return _sequence(layer, heads, shared=shared)
    if isinstance(layer, (BasicBlock, Bottleneck)):
        return _block(layer, heads, shared=shared)
    if isinstance(layer, Conv):
        return _conv(layer, heads, shared=shared)
    if isinstance(layer, nn.BatchNorm2d) and layer.affine and layer.track_running_stats and not shared:
        return _batch_norm(layer, heads)
    if isinstance(layer, nn.Linear):
        return HeadsLinear(layer, heads, shared=shared)
    raise _refused(f"one with {type(layer).__name__}")


def _block(block: BasicBlock | Bottleneck, heads: int, *, shared: bool) -> nn.Module:
    grouped = copy.deepcopy(block)
    for name, child in block.named_children():
        own_input = shared and name in READ_THE_INPUT
        grouped.add_module(name, _grouped(child, heads, shared=own_input))
    return grouped


def _conv(conv: Conv, heads: int, *, shared: bool) -> nn.Conv2d:
    return nn.Conv2d(
        conv.in_channels if shared else heads * conv.in_channels,
        heads * conv.out_channels,
        conv.kernel_size,  # type: ignore[arg-type]
        stride=conv.stride,  # type: ignore[arg-type]
        padding=conv.padding,  # type: ignore[arg-type]
        groups=1 if shared else heads,
        bias=False,
        device="meta",
    )


def _batch_norm(norm: nn.BatchNorm2d, heads: int) -> nn.BatchNorm2d:
    grouped = nn.BatchNorm2d(heads * norm.num_features, eps=norm.eps, momentum=norm.momentum, device="meta")
    # each head keeps its own count, for networks that were trained apart
    grouped.num_batches_tracked = torch.zeros(heads, dtype=torch.long, device="meta")
    return grouped


def _empty(tensor: Tensor, heads: int) -> Tensor:
    return torch.empty(heads * len(tensor), *tensor.shape[1:], device="meta", dtype=tensor.dtype)


def _refused(got: str) -> ConfigError:
    return ConfigError(
        "a head of our CIFAR or ImageNet ResNets to group", got, "keep the loop, which takes any module"
    )
