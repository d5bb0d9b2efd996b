"""The cost of a forward pass of one image, in both usual currencies, and the sizes of trunk and heads."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from smoothheads.models.multihead import MultiHead, temporary_mode

CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
BATCH_NORMS: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
POOLS: Final = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
COUNTED: Final = (*CONVOLUTIONS, *BATCH_NORMS, *POOLS, nn.Linear, nn.ReLU)


@dataclass(frozen=True, slots=True)
class Cost:
    """Parameters of the network, and arithmetic for one image."""

    params: int
    macs: int
    """Multiply-accumulates of convolutions and linear layers."""
    macs_paper: int
    """What ptflops counts and the SOME paper prints as FLOPs: `macs` and biases, two per BatchNorm element,
    one per element that passes a ReLU or a pooling layer."""
    flops: int
    """Two per multiply-accumulate, as torch.utils.flop_counter counts."""


@dataclass(frozen=True, slots=True)
class NetworkParts:
    """Sizes of the trunk and of one head; layers are convolutions and linear layers, except shortcuts."""

    trunk_params: int
    head_params: int
    trunk_layers: int
    head_layers: int

    @property
    def head_share_of_params(self) -> float:
        return self.head_params / max(1, self.trunk_params + self.head_params)

    @property
    def head_share_of_layers(self) -> float:
        """Returns the fraction of the counted layers that is in one head; 0 if there are none."""
        return self.head_layers / max(1, self.trunk_layers + self.head_layers)


def parts(model: MultiHead) -> NetworkParts:
    """Returns the sizes of the trunk and of the first head."""

    def layers(part: nn.Module) -> int:
        counted = (*CONVOLUTIONS, nn.Linear)
        return sum(isinstance(m, counted) and "downsample" not in name for name, m in part.named_modules())

    trunk, head = model.trunk, model.heads[0]
    return NetworkParts(_params(trunk), _params(head), layers(trunk), layers(head))


def cost(model: nn.Module, shape: tuple[int, int, int]) -> Cost:
    """Counts the layers that are modules in one forward pass, which leaves mode and buffers as they are."""
    macs = extra = 0

    def count(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        nonlocal macs, extra
        if isinstance(module, (*CONVOLUTIONS, nn.Linear)):
            # Every output element is a product of one filter with its inputs; ptflops adds the bias.
            macs += output.numel() * module.weight[0].numel()
            extra += output.numel() if module.bias is not None else 0
        elif isinstance(module, BATCH_NORMS):
            extra += inputs[0].numel() * (2 if module.affine else 1)
        else:  # ptflops counts what comes out of a ReLU, and what goes into a pooling layer
            extra += (output if isinstance(module, nn.ReLU) else inputs[0]).numel()

    # Count in every layer while one image of zeros passes through the network.
    hooks = [module.register_forward_hook(count) for module in model.modules() if isinstance(module, COUNTED)]
    state = itertools.chain(model.parameters(), (b for b in model.buffers() if b.is_floating_point()))
    like = next(state, torch.empty(0))
    try:
        with temporary_mode(model, training=False), torch.no_grad():
            model(torch.zeros(1, *shape, device=like.device, dtype=like.dtype))
    finally:
        for hook in hooks:
            hook.remove()
    return Cost(params=_params(model), macs=macs, macs_paper=macs + extra, flops=2 * macs)


def _params(part: nn.Module) -> int:
    return sum(p.numel() for p in part.parameters())
