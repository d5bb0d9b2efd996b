"""The one model class: a shared trunk and L independent heads, with normalisation as the first layer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoothheads.config.check import positive
from smoothheads.errors import ConfigError
from smoothheads.models.adapters import select_logits
from smoothheads.models.config import ModelConfig


class MultiHead(nn.Module):
    """`normalize -> trunk -> L heads`. A single network is L = 1; K separate networks have an identity trunk.

    Trunk and heads share no parameter: a ConfigError says so otherwise. What the trunk returns goes to every
    head unchanged, so a head must not write into its input.
    """

    ensemble_weights: Tensor | None
    """Float64 [L] of the aggregation `weighted`, saved with the network; None unless `weigh` was called."""
    config: ModelConfig | None = None
    """How to build it by name; None for somebody's own module."""
    notes: tuple[str, ...] = ()
    """Sentences about the network that belong into the notes of its certificates."""

    def __init__(
        self, trunk: nn.Module, heads: Sequence[nn.Module], normalize: nn.Module | None = None
    ) -> None:
        super().__init__()
        if not heads:
            raise ConfigError("A network needs at least one head: give one module per head.")
        # A parameter that two parts share would be trained by both, and could not be copied or cut.
        owner: dict[int, int] = {}
        for index, part in enumerate([trunk, *heads]):
            for name, parameter in part.named_parameters():
                if owner.setdefault(id(parameter), index) != index:
                    raise ConfigError(
                        f"Trunk and heads need parameters of their own, but {name!r} is a shared parameter: "
                        "build every head anew or copy it."
                    )
        self.normalize = nn.Identity() if normalize is None else normalize
        self.trunk = trunk
        self.heads = nn.ModuleList(heads)
        self.register_buffer("ensemble_weights", None)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns logits [L, N, C] for pixels in [0, 1] plus noise (h^k(g(x)) of the SOME paper)."""
        # The trunk runs once for all heads.
        features = self.trunk(self.normalize(x_NCHW))
        return torch.stack([select_logits(head(features)) for head in self.heads])

    def weigh(self, weights_L: Tensor | None) -> None:
        """Sets the learned weights, which may be negative, or removes them; `forward` stays the same."""
        if weights_L is not None:
            heads = len(self.heads)
            usable = weights_L.shape == (heads,) and bool(weights_L.isfinite().all() and weights_L.any())
            if heads < 2 or not usable:
                raise ConfigError(
                    f"Weights {weights_L.tolist()} do not fit {heads} heads: give each of two or more heads "
                    "a finite weight, not all 0."
                )
            device = next(self.parameters(), weights_L).device
            weights_L = weights_L.detach().to(device=device, dtype=torch.float64, copy=True)
        self.ensemble_weights = weights_L

    def head_parameters(self) -> list[list[nn.Parameter]]:
        """Returns every parameter of each head, in the same order for all heads."""
        return [list(head.parameters()) for head in self.heads]

    def head_weights(self) -> list[list[nn.Parameter]]:
        """Returns the weights of each head's convolutions and linear layers: no biases, no BatchNorm."""
        return [[p for p in parameters if p.ndim >= 2] for parameters in self.head_parameters()]


def as_multihead(model: nn.Module, *, convert: bool = False) -> MultiHead:
    """Returns any network that gives logits [N, C] as one head.

    Raises ConfigError for what cannot compute with float32 images yet: a class, tensors without shape or
    values, sparse weights, another precision.

    Args:
        model: The network.
        convert: Takes a float32 copy of a network in half or double precision, with a note.
    """
    if isinstance(model, type):
        raise ConfigError(f"{model.__name__} is a class: create the network first, as in {model.__name__}().")
    if not isinstance(model, nn.Module):
        raise ConfigError(f"A network is a torch.nn.Module, not a {type(model).__name__}.")
    # All tensors need values, except in a sketch that is made on the meta device on purpose.
    sketch = torch.get_default_device().type == "meta"
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            problem = "has no shape yet: run the network once on images, so that lazy modules are initialised"
        elif tensor.is_meta and not sketch:
            problem = "is on the meta device and has no values: load the weights first"
        elif tensor.layout != torch.strided:
            problem = "is sparse: replace it by its to_dense()"
        else:
            continue
        raise ConfigError(f"The tensor {name!r} of the network {problem}.")
    # Quantised networks have parameters of several types, and are used as they are.
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    notes: tuple[str, ...] = ()
    if len(dtypes) == 1 and dtypes != {torch.float32}:
        precision = str(*dtypes).removeprefix("torch.")
        copied = None
        with suppress(Exception):  # somebody's own module may hold what cannot be copied
            copied = copy.deepcopy(model).float() if convert else None
        if copied is None:
            raise ConfigError(
                f"The network's parameters are {precision}, but images are float32: pass "
                "model.float(); lower precision is a setting of training and of the engine."
            )
        model = copied
        notes = (
            f"the network's parameters are {precision}: a float32 copy of it is used, which rounds otherwise",
        )
    network = model if isinstance(model, MultiHead) else MultiHead(nn.Identity(), [model])
    network.notes += notes
    return network


class Normalize(nn.Module):
    """`(x - mean) / std` per channel, for pixels in [0, 1] plus unclipped noise; saved with the weights.

    It is part of the network, behind the noise, so that radii are in pixel units.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std):
            raise ConfigError(f"Give one mean and one std per channel, not {len(mean)} and {len(std)}.")
        for value in std:
            positive("std", value)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).reshape(-1, 1, 1))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return (x_NCHW - self.mean) / self.std


class Resize(nn.Module):
    """Resizes images behind the noise, as part of the network, so that radii are in pixels of the original.

    Args:
        size: Height and width.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.size = size

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if tuple(x_NCHW.shape[-2:]) == self.size:
            return x_NCHW
        return nn.functional.interpolate(
            x_NCHW, self.size, mode="bilinear", align_corners=False, antialias=True
        )

    def extra_repr(self) -> str:
        return f"{self.size[0]}x{self.size[1]}"


@contextmanager
def temporary_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Puts the whole model into that mode; afterwards, also after an error, each module is as it was."""
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, was_training in before:
            module.training = was_training
