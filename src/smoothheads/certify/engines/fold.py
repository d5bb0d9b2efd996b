"""BatchNorm folded into the convolution before it: the same function up to rounding, with fewer passes over
memory. Only modules are exchanged; the network's own code still runs, whatever it does."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.nn.utils.parametrize import is_parametrized

from smoothheads.models.cost import BATCH_NORMS, CONVOLUTIONS

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
