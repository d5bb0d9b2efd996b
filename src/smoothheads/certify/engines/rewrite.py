"""A network in a form that engines run faster.

`folded`: BatchNorm goes into the convolution before it, the same function up to rounding, with fewer ways
through memory. Only modules are exchanged; the network's own code still runs, whatever it does. `split`: what
every sample goes through and what few do, for the aggregation consensus-K.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.nn.utils.parametrize import is_parametrized

from smoothheads.errors import ConfigError, one_of
from smoothheads.models.aggregate import aggregations
from smoothheads.models.cost import BATCH_NORMS, CONVOLUTIONS
from smoothheads.models.multihead import MultiHead

CLOSE: Final = 1e-3  # of the largest logit

Pair = tuple[str, str]
Network = TypeVar("Network", bound=nn.Module)


def folded(model: Network, shape: tuple[int, int, int]) -> Network | None:
    """A copy of a network in eval mode; none if nothing in it can be folded, or not without harm."""
    try:
        plain = copy.deepcopy(model)
    except Exception:  # somebody's own module; it is then used as it is
        return None
    pairs = list(
        _pairs(plain)
    )  # tracing runs the network's code, so it is done on a copy that is thrown away
    if not pairs:
        return None
    plain, lean = copy.deepcopy(model), copy.deepcopy(model)
    for convolution, norm in pairs:
        _fold(lean, convolution, norm)
    return lean if _agree(plain, lean, shape) else None


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        layer = isinstance(m, (*CONVOLUTIONS, *BATCH_NORMS))  # also those with a class of their own
        return layer or super().is_leaf_module(m, module_qualified_name)


def _pairs(module: nn.Module, prefix: str = "") -> Iterator[Pair]:
    """Names of convolutions and of the BatchNorms that are the only ones to read them."""
    try:
        nodes = list(_Tracer().trace(module).nodes)
    except Exception:  # code that looks at the data cannot be traced, but its parts may be
        for name, child in module.named_children():
            yield from _pairs(child, f"{prefix}{name}.")
        return
    calls = Counter(node.target for node in nodes if node.op == "call_module")
    for norm in nodes:
        reads = norm.all_input_nodes
        if norm.op != "call_module" or len(reads) != 1 or reads[0].op != "call_module":
            continue
        alone = len(reads[0].users) == 1 and calls[norm.target] == calls[reads[0].target] == 1
        names = str(reads[0].target), str(norm.target)
        if alone and _foldable(*map(module.get_submodule, names)):
            yield prefix + names[0], prefix + names[1]


def _foldable(convolution: nn.Module, norm: nn.Module) -> bool:
    plain = isinstance(convolution, CONVOLUTIONS) and isinstance(norm, BATCH_NORMS)
    if not plain or norm.training or norm.running_mean is None or norm.running_var is None:
        return False
    ours = (type(convolution).forward, type(norm).forward)
    usual = ours in [(kind.forward, _BatchNorm.forward) for kind in CONVOLUTIONS]
    return usual and not any(_changed(each) for each in (convolution, norm))


def _changed(module: nn.Module) -> bool:
    return is_parametrized(module) or bool(module._forward_hooks or module._forward_pre_hooks)


def _fold(model: nn.Module, convolution: str, norm: str) -> None:
    """In float64, so that one rounding is all that it costs."""
    before: Any = model.get_submodule(convolution)
    after: Any = model.get_submodule(norm)
    kind = before.weight.dtype
    fused: nn.Module = fuse_conv_bn_eval(before.double(), after.double())
    for name, module in ((convolution, fused.to(kind)), (norm, nn.Identity())):
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, module)


@torch.inference_mode()
def _agree(plain: nn.Module, lean: nn.Module, shape: tuple[int, int, int]) -> bool:
    like = next(lean.parameters())
    x = torch.linspace(0, 1, 2 * math.prod(shape), device=like.device, dtype=like.dtype).reshape(2, *shape)
    before, after = plain(x), lean(x)
    return bool((before - after).abs().max() <= CLOSE * before.abs().max())  # false for NaN


class Early(nn.Module):
    """Logits [K, N, C] of the first K heads, and the features that the other heads would read."""

    def __init__(self, model: MultiHead, first: int) -> None:
        super().__init__()
        self.normalize, self.trunk, self.heads = model.normalize, model.trunk, model.heads[:first]

    def forward(self, x_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(self.normalize(x_NCHW))
        if not isinstance(features, Tensor):
            raise ConfigError("a trunk with one output for lazy_consensus", "several", "switch it off")
        return torch.stack([head(features) for head in self.heads]), features


class Late(nn.Module):
    """Logits [L - K, N, C] of the other heads from the features."""

    def __init__(self, model: MultiHead, first: int) -> None:
        super().__init__()
        self.heads = model.heads[first:]

    def forward(self, features: Tensor) -> Tensor:
        return torch.stack([head(features) for head in self.heads])


def split(model: MultiHead, aggregation: str) -> tuple[Early, Late]:
    """Both parts share the network's modules."""
    known = [name for name in aggregations(len(model.heads)) if name.startswith("consensus-")]
    if not known:
        raise ConfigError("three heads or more for lazy_consensus", f"{len(model.heads)}", "switch it off")
    if aggregation not in known:
        raise one_of("consensus of this network", aggregation, known)
    first = int(aggregation.removeprefix("consensus-"))
    return Early(model, first), Late(model, first)
