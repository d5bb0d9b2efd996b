"""Any network is cut into trunk and head, and becomes a multi-head network: shared up to the cut."""

from __future__ import annotations

import copy
import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from smoothheads.config.check import at_least
from smoothheads.errors import ConfigError, one_of
from smoothheads.models.fx_split import ADVICE, fx_split
from smoothheads.models.mode import borrowed_mode
from smoothheads.models.multihead import MultiHead
from smoothheads.seeding import drawing

Parts = tuple[nn.Module, nn.Module]
SIDES: Final = (32, 28, 224, 64, 96, 16, 8, 4, 128, 256, 299)  # of images, the usual ones first


@runtime_checkable
class Splittable(Protocol):
    """A network that knows where it can be cut: head(trunk(x)) is what it computes."""

    def split(self, cut: str) -> Parts: ...


def multihead(
    model: nn.Module,
    cut: str | int | None,
    heads: int,
    *,
    example: Tensor | None = None,
    normalize: nn.Module | None = None,
    reinit: bool | Callable[[nn.Module], None] = True,
    head_factory: Callable[[], nn.Module] | None = None,
    seed: int = 0,
) -> MultiHead:
    """A multi-head network made of a copy of `model`, which itself stays as it is.

    The trunk ends after the submodule `cut` (or where the model's own `split` says); `input` shares nothing.
    With a `head_factory` the model is the trunk, the cut is None and the heads are what the factory returns.
    On the `example` (a batch of images; by default one that fits the first layer) every head is checked to
    give the model's own logits, bit for bit, before the heads are drawn anew, head k from the k-th stream of
    `seed`; `reinit=False` keeps them as exact copies, and a function initialises a head in place of
    `reset_parameters`.
    """
    at_least("heads", heads, 1)
    _refuse_batch_statistics(model)
    if head_factory is not None:
        made = []
        for k in range(heads):
            with drawing(seed, "init", k):
                made.append(head_factory())
        return _from_factory(model, cut, made, example, normalize)
    trunk, head = split(copy.deepcopy(model), cut)
    _refuse_ties(trunk, head)
    network = _assemble(trunk, [copy.deepcopy(head) for _ in range(heads)], None)
    example = example_for(model) if example is None else example
    _check(network, [_logits(model, example)] * heads, example)
    if reinit:
        initialise = reset if reinit is True else reinit
        for k, copied in enumerate(network.heads):
            with drawing(seed, "init", k):
                initialise(copied)
    return MultiHead(trunk, list(network.heads), normalize)


def reset(module: nn.Module) -> None:
    """Draws every parameter anew with the layers' own `reset_parameters`."""
    for child in module.children():
        reset(child)
    own = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    if own is not None:
        own()
        return
    for name, _ in module.named_parameters(recurse=False):
        raise ConfigError(
            "layers with a reset_parameters method",
            f"a parameter {name!r} of {type(module).__name__} without one",
            "pass reinit=False, or a function that initialises a head",
        )


def augment(*args: Any, **settings: Any) -> MultiHead:
    """The old name of `multihead`."""
    warnings.warn("smoothheads.augment is now smoothheads.multihead", DeprecationWarning, stacklevel=2)
    return multihead(*args, **settings)


def split(model: nn.Module, cut: str | int | None) -> Parts:
    """Trunk and head, which use the model's own layers: head(trunk(x)) is what the model computes."""
    if cut is None:
        raise ConfigError("the name of a cut", "None", "name a submodule, or pass a head_factory")
    if isinstance(model, Splittable) and isinstance(cut, str):
        return model.split(cut)
    if cut == "input":
        return nn.Identity(), model
    sequential = type(model).forward is nn.Sequential.forward
    if sequential and (cut in model._modules or isinstance(cut, int)):
        return _slice([(name, child) for name, child in model._modules.items() if child is not None], cut)
    if isinstance(cut, int) or cut not in dict(model.named_modules()):
        raise one_of("submodule to cut after", str(cut), model._modules)
    return fx_split(model, cut)


def _slice(children: list[tuple[str, nn.Module]], cut: str | int) -> Parts:
    names = [name for name, _ in children]
    end = (names.index(cut) if isinstance(cut, str) else cut) + 1
    if not 0 < end <= len(names):
        raise ConfigError(
            f"an index from 0 to {len(names) - 1}", str(cut), "choose a child of the Sequential"
        )
    return nn.Sequential(OrderedDict(children[:end])), nn.Sequential(OrderedDict(children[end:]))


def _from_factory(
    trunk: nn.Module,
    cut: str | int | None,
    heads: list[nn.Module],
    example: Tensor | None,
    normalize: nn.Module | None,
) -> MultiHead:
    if cut is not None:
        raise ConfigError("cut=None with a head_factory", repr(cut), "the model that you pass is the trunk")
    for head in heads:
        _refuse_batch_statistics(head)
    network = _assemble(copy.deepcopy(trunk), heads, normalize)
    alone = [nn.Sequential(network.normalize, network.trunk, head) for head in heads]
    example = example_for(alone[0]) if example is None else example
    _check(network, [_logits(model, example) for model in alone], example)
    return network


def _assemble(trunk: nn.Module, heads: list[nn.Module], normalize: nn.Module | None) -> MultiHead:
    for head in heads:
        for module in head.modules():
            if hasattr(module, "inplace"):  # a head must not overwrite what the next head reads
                module.inplace = False  # type: ignore[assignment]
    return MultiHead(trunk, heads, normalize)


def _refuse_batch_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        batch_norm = isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm))
        if batch_norm and module.running_mean is None:
            raise ConfigError(
                "BatchNorm with running statistics",
                f"{name!r} without, whose answer for an image depends on the rest of the batch",
                "set track_running_stats=True, or use another normalisation",
            )


def _refuse_ties(trunk: nn.Module, head: nn.Module) -> None:
    if not list(head.parameters()):
        raise ConfigError("a head with parameters", "none behind the cut", "cut earlier in the network")
    in_trunk = {id(p) for p in trunk.parameters()} | {
        id(m) for m in trunk.modules() if list(m.buffers(recurse=False))
    }
    tied = [name for name, p in head.named_parameters() if id(p) in in_trunk]
    tied += [name for name, m in head.named_modules() if id(m) in in_trunk]
    if tied:
        raise ConfigError(
            "no weights that both sides of the cut use", f"the tied {tied[0]!r}", "choose another cut"
        )


def _check(network: MultiHead, expected: list[Tensor], example: Tensor) -> None:
    """Each head gives the expected logits, bit for bit; those of an image do not depend on its batch."""
    logits_LNC = _run(network, example)
    for k, (got, want) in enumerate(zip(logits_LNC, expected, strict=True)):
        if not torch.equal(got, want):
            raise ConfigError(
                "the model's own logits behind the cut",
                f"a difference of {(got - want).abs().max():.3g} in head {k + 1}",
                f"its forward changes values in place or at random; {ADVICE}",
            )
    _warn_if_batch_matters(network, logits_LNC, example)


def _logits(model: nn.Module, example: Tensor) -> Tensor:
    out = _run(model, example)
    if not (isinstance(out, Tensor) and out.ndim == 2 and len(out) == len(example)):
        got = f"a tensor {list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise ConfigError("logits [N, C]", got, "wrap the model in a module that returns only the logits")
    return out


def example_for(model: nn.Module) -> Tensor:
    """A batch of three random images that the model takes, by its first layer and the usual sizes."""
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    for shape in _shapes(model):
        batch = torch.rand(3, *shape, generator=generator).to(device=like.device, dtype=like.dtype)
        try:
            _run(model, batch)
        except (RuntimeError, ValueError, TypeError, IndexError):  # not a size for this network
            continue
        return batch
    raise ConfigError(
        "a network whose images can be guessed from its first layer",
        type(model).__name__,
        "pass a batch of its images as `example`",
    )


def _shapes(model: nn.Module) -> Iterator[tuple[int, int, int]]:
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            yield from ((layer.in_channels, side, side) for side in SIDES)
            return
        if isinstance(layer, nn.Linear):
            for channels in (1, 3):
                side = math.isqrt(layer.in_features // channels)
                if channels * side * side == layer.in_features:
                    yield channels, side, side
            return


def _run(model: nn.Module, x: Tensor) -> Tensor:
    with borrowed_mode(model, training=False), torch.no_grad():
        out: Tensor = model(x)
    return out


def _warn_if_batch_matters(network: MultiHead, alone_LNC: Tensor, example: Tensor) -> None:
    strangers = torch.rand(example.shape, generator=torch.Generator().manual_seed(0)).to(example)
    together_LNC = _run(network, torch.cat([example, strangers]))[:, : len(example)]
    # up to rounding, since kernels may differ with the batch size
    if not torch.allclose(alone_LNC, together_LNC, rtol=1e-2, atol=1e-3 * float(alone_LNC.abs().max())):
        warnings.warn(
            "the network's answer for an image depends on the rest of the batch, so its votes are not "
            "independent and a certificate would be wrong; look for layers that mix samples",
            stacklevel=4,
        )
