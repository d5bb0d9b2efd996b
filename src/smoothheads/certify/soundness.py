"""Checks that what is sampled is a function of the noisy image and nothing else.

The theorem is about a fixed function. A network that answers NaN, that looks at its neighbours in the batch
or that changes while it is sampled would be given certificates that mean nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from smoothheads.errors import SoundnessError
from smoothheads.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

ROUNDING: Final = 16  # units in the last place of the largest logit that sums in another order may move

Plain = bool | int | float | complex | str | bytes | None


def require_finite(logits: Tensor, index: int) -> None:
    """The argmax of a row of NaN is class 0; such a row must never become a vote."""
    if not bool(torch.isfinite(logits).all()):
        bad = int((~torch.isfinite(logits)).any(-1).sum())
        raise SoundnessError(
            "finite logits",
            f"{bad} noisy samples of image {index} with NaN or infinite logits",
            "certify in float32, or repair the network",
        )


def require_classes(logits: Tensor, classes: int) -> None:
    """A vote for a class that the data do not have would be counted as somebody else's."""
    if logits.shape[-1] != classes:
        raise SoundnessError(
            f"logits of {classes} classes, as the data have",
            f"{logits.shape[-1]}",
            "certify on the data that the network was trained for, or say how many classes there are",
        )


def require_range(votes: Tensor, classes: int) -> None:
    """Counted in one go, a vote for a class that does not exist is one for a class of the next aggregation."""
    lowest, highest = (int(end) for end in votes.aminmax()) if votes.numel() else (0, 0)
    if lowest < 0 or highest >= classes:
        raise SoundnessError(
            f"votes for classes 0 to {classes - 1}", f"{lowest} to {highest}", "repair the aggregation"
        )


def require_function(
    logits_of: Callable[[Tensor], Tensor],
    samples: Tensor,
    tolerance: float,
    remedy: str = "put the network into eval mode and use no layer that mixes samples",
    *,
    logits: bool = True,
) -> bool:
    """Probes one block: the same input must give the same logits, wherever it stands and beside whatever.

    `tolerance` allows for the rounding of another summation order, see `moved`; 0 allows none. False if
    there was nothing to compare, because a logit is not finite.
    """
    first = logits_of(samples)
    if not bool(torch.isfinite(first).all()):
        return False  # require_finite names the image
    if not torch.equal(first, logits_of(samples)):
        raise SoundnessError(
            "the same logits for the same input",
            "different logits on a second pass",
            "switch dropout and other randomness off, and let the network keep no state",
        )
    if len(samples) == 1:
        return True
    turned = logits_of(samples.flip(0)).flip(1)
    half = len(samples) // 2
    other = torch.cat([samples[:half], samples[half:].flip(-1) + 1])
    beside = logits_of(other)
    for what, same, got in (
        ("its place in the batch", first, turned),
        ("its neighbours in the batch", first[:, :half], beside[:, :half]),
    ):
        if moved(same, got, tolerance, logits=logits):
            raise SoundnessError(
                "logits that depend on the noisy image alone",
                f"logits that move by {float((same - got).abs().max()):.3g} with {what}",
                remedy,
            )
    return True


def moved(expected: Tensor, got: Tensor, tolerance: float, *, logits: bool = True) -> bool:
    """Whether outputs [..., N, C] of N samples differ by more than rounding.

    Of logits only differences count, so what all classes of a sample have in common is taken off both. The
    rest may move by `tolerance` of what it is for half of the samples (other outputs: of how far they lie
    from their mean), so that neither a common offset nor a few large numbers hide anything. A tolerance of 0
    allows no bit to differ.
    """
    if tolerance == 0:
        return not torch.equal(expected, got)
    before, after = expected.double(), got.double()
    if logits:
        before, after = before - before.mean(-1, keepdim=True), after - after.mean(-1, keepdim=True)
        usual = before.abs().amax(-1).median()
    else:
        usual = (before - before.mean(-2, keepdim=True)).abs().median()
    rounding = ROUNDING * torch.finfo(torch.float32).eps * float(expected.abs().max())
    return not float((before - after).abs().max()) <= tolerance * float(usual) + rounding  # also for NaN


def require_apart(logits_of: Callable[[Tensor], Tensor], samples: Tensor, size: int) -> None:
    """Probes one pass, with finite logits, of several blocks of `size` samples: a block must have the same
    logits, to the bit, in every place and beside whatever, because what stands beside it is chance."""
    blocks = len(samples) // size
    if blocks == 1:
        return
    first = logits_of(samples)
    everywhere = logits_of(torch.cat([samples[:size]] * blocks))
    _require_equal(everywhere, first[:, :size].repeat(1, blocks, 1), "the place of its block")
    second_N = torch.arange(len(samples), device=samples.device) // size % 2 == 1  # every second block
    for others_N in (second_N, ~second_N):
        mixed = samples.clone()
        mixed[others_N] = samples[others_N].flip(-1) + 1
        _require_equal(logits_of(mixed)[:, ~others_N], first[:, ~others_N], "what stands beside its block")


def _require_equal(got: Tensor, expected: Tensor, what: str) -> None:
    if not torch.equal(got, expected):
        raise SoundnessError(
            "logits that do not depend on what else is in a pass",
            f"logits that move by {float((got - expected).abs().max()):.3g} with {what}",
            "set blocks_per_pass to 1",
        )


def fingerprint(model: nn.Module) -> str:
    """Hash of every tensor that the network holds: parameters, buffers, also those that are not saved, and
    tensors in plain attributes; equal before and after means that they kept still."""
    state = hashlib.sha256()
    saved = model.state_dict(keep_vars=True)
    for name, value in saved.items():
        _update(state, name, value)
    known = {id(value) for value in saved.values()}
    for name, value in _held(model, "", set()):
        if isinstance(value, torch.Tensor) and id(value) not in known:
            _update(state, f"\0{name}", value)
    return state.hexdigest()


def whole_state(model: nn.Module) -> str:
    """As `fingerprint`, and of the numbers, texts and arrays in attributes: a network may count its calls."""
    state = hashlib.sha256(fingerprint(model).encode())
    for name, value in _held(model, "", set()):
        if not isinstance(value, torch.Tensor):
            state.update(f"\0{name}\0{value!r}".encode())
    return state.hexdigest()


def require_still(before: str, after: str) -> None:
    """Compares `Engine.fingerprint` before and after sampling."""
    if before != after:
        raise SoundnessError(
            "a network that stays as it is",
            "weights, buffers or attributes that changed during certification",
            "let the forward pass keep no state (run the network once before if it fills a cache), and start "
            "a new ledger",
        )


def _update(state: Any, name: str, value: Tensor) -> None:
    state.update(name.encode())
    state.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())


def _held(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Tensor | Plain]]:
    """Tensors and plain values in a module, its children, and lists and dicts of such, with their names; each
    object once."""
    if isinstance(value, np.ndarray):
        yield name, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    elif isinstance(value, torch.Tensor | Plain):
        yield name, value
    elif isinstance(value, torch.nn.Module | dict | list | tuple) and id(value) not in seen:
        seen.add(id(value))
        held = vars(value) if isinstance(value, torch.nn.Module) else value
        pairs = held.items() if isinstance(held, dict) else enumerate(held)
        for key, inner in list(pairs):
            yield from _held(inner, f"{name}.{key}", seen)
