"""Checks that what is sampled is a function of the noisy image and nothing else.

The theorem is about a fixed function. A network that answers NaN, that looks at its neighbours in the batch
or that changes while it is sampled would be given certificates that mean nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from smoothheads.errors import SoundnessError


def require_finite(logits: Tensor, index: int) -> None:
    """The argmax of a row of NaN is class 0; such a row must never become a vote."""
    if not bool(torch.isfinite(logits).all()):
        bad = int((~torch.isfinite(logits)).any(-1).sum())
        raise SoundnessError(
            "finite logits",
            f"{bad} noisy copies of image {index} with NaN or infinite logits",
            "certify in float32, or repair the network",
        )


def require_function(
    logits_of: Callable[[Tensor], Tensor],
    copies: Tensor,
    tolerance: float,
    remedy: str = "put the network into eval mode and use no layer that mixes samples",
) -> bool:
    """Probes one block: the same input must give the same logits, wherever it stands and beside whatever.

    `tolerance` (relative to the largest logit) allows for the rounding of another summation order. False if
    there was nothing to compare, because a logit is not finite.
    """
    first = logits_of(copies)
    if not bool(torch.isfinite(first).all()):
        return False  # require_finite names the image
    if not torch.equal(first, logits_of(copies)):
        raise SoundnessError(
            "the same logits for the same input",
            "different logits on a second pass",
            "switch dropout and other randomness off, and let the network keep no state",
        )
    if len(copies) == 1:
        return True
    allowed = tolerance * float(first.abs().max())
    turned = logits_of(copies.flip(0)).flip(1)
    half = len(copies) // 2
    other = torch.cat([copies[:half], copies[half:].flip(-1) + 1])
    beside = logits_of(other)
    for what, same, got in (
        ("its place in the batch", first, turned),
        ("its neighbours in the batch", first[:, :half], beside[:, :half]),
    ):
        difference = float((same - got).abs().max())
        if not difference <= allowed:
            raise SoundnessError(
                "logits that depend on the noisy image alone",
                f"logits that move by {difference:.3g} with {what}",
                remedy,
            )
    return True


def require_apart(logits_of: Callable[[Tensor], Tensor], copies: Tensor, size: int) -> None:
    """Probes one pass, with finite logits, of several blocks of `size` copies: a block must have the same
    logits, to the bit, in every place and beside whatever, because what stands beside it is chance."""
    blocks = len(copies) // size
    if blocks == 1:
        return
    first = logits_of(copies)
    everywhere = logits_of(torch.cat([copies[:size]] * blocks))
    _require_equal(everywhere, first[:, :size].repeat(1, blocks, 1), "the place of its block")
    second_N = torch.arange(len(copies), device=copies.device) // size % 2 == 1  # every second block
    for others_N in (second_N, ~second_N):
        mixed = copies.clone()
        mixed[others_N] = copies[others_N].flip(-1) + 1
        _require_equal(logits_of(mixed)[:, ~others_N], first[:, ~others_N], "what stands beside its block")


def _require_equal(got: Tensor, expected: Tensor, what: str) -> None:
    if not torch.equal(got, expected):
        raise SoundnessError(
            "logits that do not depend on what else is in a pass",
            f"logits that move by {float((got - expected).abs().max()):.3g} with {what}",
            "set blocks_per_pass to 1",
        )


def fingerprint(model: nn.Module) -> str:
    """Hash of all parameters and buffers; equal before and after means the network kept still."""
    state = hashlib.sha256()
    for name, value in model.state_dict().items():
        state.update(name.encode())
        state.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
