"""Checks that what is sampled is a function of the noisy image and nothing else.

The theorem is about a fixed function. A network that answers NaN, that looks at its neighbours in the batch
or that changes while it is sampled would be given certificates that mean nothing.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smoothheads.errors import ConfigError, SoundnessError

if TYPE_CHECKING:
    from torch import Tensor, nn

ROUNDING: Final = 16  # units in the last place of the largest logit that sums in another order may move
BATCHES: Final = (50, 25, 10, 1)  # sizes of batches that a network must treat like the whole pass


class NotAFunctionError(SoundnessError):
    """The network's output depends on more than one image, so every certificate of the run is void."""


Floats: TypeAlias = NDArray[np.float32]
LogitsOf: TypeAlias = Callable[[Floats], Floats]
REMEDY: Final = "put the network into eval mode and use no layer that mixes samples"


def check_logits(logits_LNC: Floats, classes: int, index: int) -> None:
    """Raises SoundnessError for logits that must never become votes.

    The argmax of a row of NaN is class 0, and a vote for a class that the data do not have would be counted
    as one for a class of the next aggregation.
    """
    if logits_LNC.shape[-1] != classes:
        raise SoundnessError(
            f"The network gives logits of {logits_LNC.shape[-1]} classes, but the data have {classes}: "
            "certify on the data that it was trained for, or state how many classes there are."
        )
    finite_N = np.isfinite(logits_LNC).all((0, 2))
    if not finite_N.all():
        raise SoundnessError(
            f"{int((~finite_N).sum())} noisy samples of image {index} have NaN or infinite logits: "
            "certify in float32, or repair the network."
        )


def check_function(
    logits_of: LogitsOf, samples_NCHW: Floats, tolerance: float, *, any_batch: bool = False
) -> bool:
    """Probes one pass: a sample must get the same logits wherever it stands and whatever else is there.

    This is the first line only; `Recheck` goes on looking while votes are counted.

    Args:
        logits_of: The network.
        samples_NCHW: The first pass of noisy samples.
        tolerance: Rounding of another summation order, see `moved`; 0 allows none.
        any_batch: Says that the network takes batches of other sizes too.

    Returns:
        False if there was nothing to compare, because a logit is not finite.
    """
    first = logits_of(samples_NCHW)
    if not np.isfinite(first).all():
        return False  # check_logits names the image

    def compare(logits: Floats, places: NDArray[np.int64], origin: NDArray[np.int64], what: str) -> None:
        """The samples at `places` are those that stood at `origin` in the first pass."""
        got, expected = logits[:, places], first[:, origin]
        if moved(expected, got, tolerance):
            raise NotAFunctionError(
                f"The logits of a noisy image move by {float(np.abs(expected - got).max()):.3g} with {what}: "
                f"{REMEDY}."
            )

    # Twice the same input: no dropout and no other randomness.
    if not np.array_equal(first, logits_of(samples_NCHW)):
        raise NotAFunctionError(
            "The same input gives different logits on a second pass: switch dropout and other randomness "
            "off, and let the network keep no state."
        )
    count = len(samples_NCHW)
    if count > 1:
        generator = np.random.default_rng(0)
        everywhere = np.arange(count)
        # Other places in the batch.
        order = generator.permutation(count)
        compare(logits_of(samples_NCHW[order]), everywhere, order, "its place in the batch")
        # Other neighbours: half of the samples, chosen at random so that every group of a batch loses some,
        # stand beside what they never saw: mirrored and brighter images, black, or copies of one of them.
        kept = np.sort(generator.permutation(count)[: -(-count // 2)])
        for filling in (
            np.flip(samples_NCHW, -1) + 1,
            np.zeros_like(samples_NCHW),
            np.broadcast_to(samples_NCHW[kept[:1]], samples_NCHW.shape),
        ):
            mixed = np.array(filling, dtype=np.float32)
            mixed[kept] = samples_NCHW[kept]
            compare(logits_of(mixed), kept, kept, "its neighbours in the batch")
        # Batches of other sizes, from other places of the pass.
        for size in BATCHES if any_batch else ():
            if size < count:
                start = int(generator.integers(count - size + 1))
                what = f"the size of its batch ({size} instead of {count})"
                try:
                    logits = logits_of(samples_NCHW[start : start + size])
                except Exception:  # a network that insists on the size of its batch never sees another one
                    continue
                compare(logits, everywhere[:size], everywhere[start:][:size], what)
    return True


def moved(expected_LNC: Floats, got_LNC: Floats, tolerance: float) -> bool:
    """Says whether logits [L, N, C] of N samples differ by more than rounding.

    Only differences of logits count, so the mean over the classes is subtracted from both. The rest may move
    by `tolerance` of what it is for half of the samples, so that neither a common offset nor a few large
    numbers hide anything. A tolerance of 0 allows no bit to differ.
    """
    if tolerance == 0:
        return not np.array_equal(expected_LNC, got_LNC)
    before, after = (
        logits - logits.mean(-1, keepdims=True)
        for logits in (expected_LNC.astype(np.float64), got_LNC.astype(np.float64))
    )
    usual = float(np.median(np.abs(before).max(-1)))
    rounding = ROUNDING * float(np.finfo(np.float32).eps) * float(np.abs(expected_LNC).max())
    return not float(np.abs(before - after).max()) <= tolerance * usual + rounding  # also for NaN


def check_blocks_independent(logits_of: LogitsOf, samples_NCHW: Floats, size: int) -> None:
    """Probes one pass, with finite logits, of several blocks of `size` samples.

    A block must have the same logits, to the bit, in every place and beside whatever, because what stands
    beside it is chance.
    """
    blocks = len(samples_NCHW) // size
    if blocks == 1:
        return
    first = logits_of(samples_NCHW)
    everywhere = logits_of(np.concatenate([samples_NCHW[:size]] * blocks))
    _check_equal(everywhere, np.tile(first[:, :size], (1, blocks, 1)), "the place of its block")
    second_N = np.arange(len(samples_NCHW)) // size % 2 == 1  # every second block
    for others_N in (second_N, ~second_N):
        mixed = samples_NCHW.copy()
        mixed[others_N] = np.flip(samples_NCHW[others_N], -1) + 1
        _check_equal(logits_of(mixed)[:, ~others_N], first[:, ~others_N], "other blocks of the same pass")


def _check_equal(got: Floats, expected: Floats, what: str) -> None:
    if not np.array_equal(got, expected):
        raise SoundnessError(
            f"The logits of a noisy image move by {float(np.abs(got - expected).max()):.3g} with {what}: "
            "set blocks_per_pass to 1."
        )


def check_unchanged(before: str, after: str) -> None:
    """Compares `Engine.fingerprint` before and after sampling."""
    if before != after:
        raise NotAFunctionError(
            "The network's weights, buffers or attributes changed during certification: let the forward pass "
            "keep no state (run the network once before if it fills a cache), and start a new ledger."
        )


def weights_fingerprint(model: nn.Module) -> str:
    """Returns a hash of every tensor that the network holds.

    These are parameters, buffers (also those that are not saved) and tensors in plain attributes.
    """
    import torch

    state = hashlib.sha256()
    saved = model.state_dict(keep_vars=True)
    for name, value in saved.items():
        _update(state, name, value)
    known = {id(value) for value in saved.values()}
    for name, value in _held(model):
        if isinstance(value, torch.Tensor) and id(value) not in known:
            _update(state, f"\0{name}", value)
    return state.hexdigest()


def state_fingerprint(model: nn.Module) -> str:
    """Returns a hash of all tensors and of the numbers, texts and arrays in attributes.

    A network may count its calls in one of them.
    """
    import torch

    state = hashlib.sha256(weights_fingerprint(model).encode())
    for name, value in _held(model):
        if not isinstance(value, torch.Tensor):
            state.update(f"\0{name}\0{value!r}".encode())
    return state.hexdigest()


def _update(state: Any, name: str, value: Any) -> None:
    import torch

    state.update(name.encode())
    if not isinstance(value, torch.Tensor):  # extra state of a module
        state.update(repr(value).encode())
        return
    try:
        plain = value.detach().cpu()
        plain = plain.int_repr() if plain.is_quantized else plain.to_dense() if plain.is_sparse else plain
        state.update(plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        raise ConfigError(
            f"The tensor {name.strip(chr(0))!r} of the network cannot be hashed "
            f"({str(error).splitlines()[0]}): run lazy modules once, and give all tensors storage."
        ) from None


def _held(model: nn.Module) -> Iterator[tuple[str, Tensor | Any]]:
    """Yields tensors and plain values with their names, each object once.

    They are those in the module and its children, and in containers of them, however deep. Other kinds of
    state are found by re-evaluation in another process, not by looking.
    """
    import torch

    waiting: list[tuple[str, Any]] = [("", model)]
    seen: set[int] = set()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, np.ndarray):
            yield name, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        elif isinstance(value, torch.Tensor | bool | int | float | complex | str | bytes | None):
            yield name, value
        elif isinstance(value, np.generic | bytearray | set | frozenset):
            yield name, repr(sorted(value, key=repr) if isinstance(value, set | frozenset) else value)
        elif isinstance(value, torch.nn.Module | dict | list | tuple | deque) and id(value) not in seen:
            seen.add(id(value))
            held: Any = vars(value) if isinstance(value, torch.nn.Module) else value
            pairs = list(held.items() if isinstance(held, dict) else enumerate(held))
            waiting += [(f"{name}.{key}", inner) for key, inner in reversed(pairs)]
