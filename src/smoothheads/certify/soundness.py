"""Checks that what is sampled is a function of the noisy image and nothing else.

The theorem is about a fixed function. A network that answers NaN, that looks at its neighbours in the batch
or that changes while it is sampled would be given certificates that mean nothing. Three checks look for such
networks, for all engines alike: `check_function` probes the first pass, `Recheck` evaluates a secret fraction
of all samples a second time, and `state_fingerprint` tells whether tensors and plain values have changed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.errors import ConfigError, SoundnessError, reason

if TYPE_CHECKING:
    from torch import Tensor, nn

    from smoothheads.certify.engines.base import Engine

ROUNDING: Final = 16  # units in the last place of the largest logit that sums in another order may move
BATCHES: Final = (50, 25, 10, 1)  # sizes of batches that a network must treat like the whole pass
FLIPS: Final = 1e-3  # rounding may change this fraction of the votes; it changes far fewer
CONFIDENCE: Final = 1e-3  # changed votes void a run if so many are less likely than this at that fraction
COMPANY: Final = 64  # earlier samples that are kept as neighbours for later ones
LONG_NAME: Final = 500  # characters from which on the place of a value in nested containers is hashed

Floats: TypeAlias = NDArray[np.float32]


class NotAFunctionError(SoundnessError):
    """The network's output depends on more than one image, so every certificate of the run is void."""


def check_finite(logits_LNC: Floats, index: int) -> None:
    """Raises SoundnessError for logits that must never become votes: argmax counts NaN as the largest."""
    finite_N = np.isfinite(logits_LNC).all((0, 2))
    if not finite_N.all():
        raise SoundnessError(
            f"{int((~finite_N).sum())} noisy samples of image {index} have NaN or infinite logits: "
            "certify in float32, or repair the network."
        )


def check_function(engine: Engine, samples_NCHW: Floats) -> bool:
    """Probes one pass: a sample must get the same logits wherever it stands and whatever else is there.

    This is the first line only; `Recheck` goes on looking while votes are counted.

    Args:
        engine: The network. It takes other batch sizes than that of a pass only if `any_batch` says so.
        samples_NCHW: The first pass of noisy samples.

    Returns:
        False if there was nothing to compare, because a logit is not finite.
    """
    first = engine.evaluate(samples_NCHW)
    if not np.isfinite(first).all():
        return False  # check_finite names the image
    # Twice the same input: no dropout and no other randomness.
    if not np.array_equal(first, engine.evaluate(samples_NCHW)):
        raise NotAFunctionError(
            "The same input gives different logits on a second pass: switch dropout and other randomness "
            "off, and let the network keep no state."
        )
    for what, batch_NCHW, places, origin in _rearranged(samples_NCHW, engine.any_batch):
        try:
            logits = engine.evaluate(batch_NCHW)[:, places]
        except Exception:
            if len(batch_NCHW) == len(samples_NCHW):
                raise
            continue  # a network that insists on the size of its batch never sees another one
        # The same samples as in the first pass must have the same logits.
        if moved(first[:, origin], logits, engine.tolerance):
            raise NotAFunctionError(
                f"The logits of a noisy image move by {np.abs(first[:, origin] - logits).max():.3g} with "
                f"{what}: put the network into eval mode and use no layer that mixes samples."
            )
    return True


Places: TypeAlias = NDArray[np.int64]


def _rearranged(samples_NCHW: Floats, any_batch: bool) -> Iterator[tuple[str, Floats, Places, Places]]:
    """Yields batches in which samples stand elsewhere than in the first pass.

    Each comes with what differs, the places of the samples to compare, and their places in the first pass.
    """
    count = len(samples_NCHW)
    if count == 1:
        return
    generator = np.random.default_rng(0)
    # Other places in the batch.
    order, everywhere = generator.permutation(count), np.arange(count)
    yield "its place in the batch", samples_NCHW[order], everywhere, order
    # Other neighbours: half of the samples, chosen at random so that every group of a batch loses some,
    # stand beside what they never saw: mirrored and brighter images, black, or copies of one of them.
    kept = np.sort(generator.permutation(count)[: -(-count // 2)])
    copies = np.broadcast_to(samples_NCHW[kept[:1]], samples_NCHW.shape)
    for filling in (np.flip(samples_NCHW, -1) + 1, np.zeros_like(samples_NCHW), copies):
        mixed = np.array(filling, dtype=np.float32)
        mixed[kept] = samples_NCHW[kept]
        yield "its neighbours in the batch", mixed, kept, kept
    # Batches of other sizes, from other places of the pass.
    for size in BATCHES if any_batch else ():
        if size < count:
            start = int(generator.integers(count - size + 1))
            what = f"the size of its batch ({size} instead of {count})"
            part = everywhere[start : start + size]
            yield what, samples_NCHW[part], everywhere[:size], part


def moved(expected_LNC: Floats, got_LNC: Floats, tolerance: float) -> bool:
    """Says whether logits [L, N, C] of N samples differ by more than rounding.

    Only differences of logits count, so the mean over the classes is subtracted from both. The rest may move
    by `tolerance` of what it is for half of the samples, so that neither a common offset nor a few large
    numbers hide anything. A tolerance of 0 allows no bit to differ.
    """
    if tolerance == 0:
        return not np.array_equal(expected_LNC, got_LNC)
    # An offset common to all classes changes no vote.
    before, after = (
        logits - logits.mean(-1, keepdims=True)
        for logits in (expected_LNC.astype(np.float64), got_LNC.astype(np.float64))
    )
    # The largest difference of a sample's logits, for half of the samples at most so much.
    usual = float(np.median(np.abs(before).max(-1)))
    # Rounding of the logits themselves, which an offset enlarges.
    rounding = ROUNDING * float(np.finfo(np.float32).eps) * float(np.abs(expected_LNC).max())
    return not float(np.abs(before - after).max()) <= tolerance * usual + rounding  # also for NaN


class Rechecked(NamedTuple):
    """How many samples were evaluated a second time, and how many votes rounding changed."""

    samples: int = 0
    changed: int = 0


class Recheck:
    """Evaluates a secret random fraction of all samples a second time.

    They come later, in batches of another composition, order and size. If the logits of a fraction q of the
    samples depend on anything but the sample, m re-evaluated samples show it with probability
    1 - (1 - q)^m, and the certification is void.
    """

    def __init__(
        self, engine: Engine, fraction: float, size: int, votes_of: Callable[[Floats], NDArray[np.int64]]
    ) -> None:
        """
        Args:
            engine: The network.
            fraction: The fraction of all samples that is evaluated again.
            size: Samples of a pass, which is the largest batch, and the only one of some engines.
            votes_of: Turns logits [L, N, C] into votes [N] of the certified aggregation.
        """
        self.engine, self.fraction, self.size, self._votes_of = engine, fraction, size, votes_of
        self._any_batch = engine.any_batch
        # Not the seed of the noise, which is published: a network must not know which samples come again.
        self._generator = np.random.default_rng(secrets.randbits(128))
        self._samples: list[Floats] = []
        self._logits: list[Floats] = []
        self._company: list[Floats] = []
        self.total = Rechecked()

    def remember(self, samples_NCHW: Floats, logits_LNC: Floats) -> None:
        """Chooses some samples of a pass, each with the same probability."""
        # Copies, because the memory of a pass is used again.
        chosen_N = self._generator.random(logits_LNC.shape[1]) < self.fraction
        for n in np.flatnonzero(chosen_N & np.isfinite(logits_LNC).all((0, 2))):
            self._samples.append(samples_NCHW[n].copy())
            self._logits.append(logits_LNC[:, n].copy())

    def run_if_full(self) -> None:
        """Runs when as many samples as a pass has are remembered; more would only take memory."""
        if len(self._samples) >= self.size:
            self.run()

    def run(self) -> None:
        """Evaluates everything that is remembered a second time, and counts it in `total`.

        Raises NotAFunctionError where logits move by more than rounding, or where more votes change than
        rounding changes.
        """
        if not self._samples:
            return
        # Another order, and batches of random sizes.
        order = self._generator.permutation(len(self._samples))
        samples = [self._samples[n] for n in order]
        expected_LMC = np.stack([self._logits[n] for n in order], 1)
        parts: list[Floats] = []
        done = 0
        while done < len(samples):
            batch = samples[done : done + int(self._generator.integers(1, self.size + 1))]
            parts.append(self._evaluate(batch))
            done += len(batch)
        got_LMC = np.concatenate(parts, 1)
        # These samples will stand beside later ones, which are mostly of other images.
        self._company = (samples + self._company)[:COMPANY]
        self._samples, self._logits = [], []
        # First test: no logit may move by more than rounding.
        if moved(expected_LMC, got_LMC, self.engine.tolerance):
            worst = float(np.abs(expected_LMC - got_LMC).max())
            raise _void(f"got other logits (by up to {worst:.3g}) when they were", "Some")
        # Second test: rounding changes a vote only where two classes tie.
        changed = int((self._votes_of(expected_LMC) != self._votes_of(got_LMC)).sum())
        self.total = Rechecked(self.total.samples + len(samples), self.total.changed + changed)
        if clopper_pearson_lower(self.total.changed, self.total.samples, CONFIDENCE) > FLIPS:
            raise _void("voted otherwise when they were", f"{self.total.changed} of {self.total.samples}")

    def _evaluate(self, samples: list[Floats]) -> Floats:
        """Returns logits [L, M, C] of these samples, evaluated beside samples of other images if possible."""
        if self._any_batch:
            room = self.size - len(samples)
            batch = samples + self._company[: int(self._generator.integers(0, room + 1))]
        else:  # fill the pass with earlier samples and copies
            fill = [*self._company, *samples]
            batch = (samples + [fill[i % len(fill)] for i in range(self.size)])[: self.size]
        # Another order, which is undone in the logits.
        order = self._generator.permutation(len(batch))
        try:
            logits_LNC = self.engine.evaluate(np.stack([batch[n] for n in order]))
        except Exception:
            if not self._any_batch:
                raise
            self._any_batch = False  # a network that insists on the size of its batch
            return self._evaluate(samples)
        return logits_LNC[:, np.argsort(order)[: len(samples)]]


def _void(what: str, which: str) -> NotAFunctionError:
    return NotAFunctionError(
        f"{which} noisy images {what} evaluated a second time, in another batch: the network is no function "
        "of one image, so every certificate of this run is void; put it into eval mode and let it keep no "
        "state."
    )


def weights_fingerprint(model: nn.Module) -> str:
    """Returns a hash of every tensor that the network holds.

    These are parameters, buffers (also those that are not saved) and tensors in plain attributes.
    """
    return _fingerprint(model, plain_values=False)


def state_fingerprint(model: nn.Module) -> str:
    """Returns a hash of all tensors and of the numbers, texts and arrays in attributes and extra state.

    A network may count its calls in one of them.
    """
    return _fingerprint(model, plain_values=True)


def _fingerprint(model: nn.Module, *, plain_values: bool) -> str:
    import torch

    digest = hashlib.sha256()
    for name, value in _held(model):
        if isinstance(value, torch.Tensor):
            digest.update(name.encode() + _tensor_bytes(name, value))
        elif plain_values:
            digest.update(name.encode() + repr(value).encode())
    return digest.hexdigest()


def _tensor_bytes(name: str, tensor: Tensor) -> bytes:
    import torch

    try:
        # Dense numbers with values: quantised and sparse tensors are written out.
        plain = tensor.detach().cpu()
        plain = plain.dequantize() if plain.is_quantized else plain
        plain = plain if plain.layout == torch.strided else plain.to_dense()
        return plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        raise ConfigError(
            f"The tensor {name!r} of the network cannot be hashed ({str(error).splitlines()[0]}): run lazy "
            "modules once, and give all tensors storage."
        ) from None


def _held(model: nn.Module) -> Iterator[tuple[str, Tensor | Any]]:
    """Yields tensors and plain values with their names, each object once.

    They are those in the module and its children, and in containers of them, however deep. Other kinds of
    state are found by evaluating samples again, in this or in another process, not by looking.
    """
    import torch

    try:
        saved = model.state_dict(keep_vars=True)
    except Exception as error:  # whatever a module's own get_extra_state raises
        raise ConfigError(f"The network's state cannot be read ({reason(error)}): repair it.") from error
    # First what is saved with the network, also by get_extra_state, then whatever else its modules hold.
    waiting: list[tuple[str, Any]] = [("module", model), ("saved", saved)]
    seen: set[int] = set()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, np.ndarray):
            yield name, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        elif isinstance(value, bool | int | float | complex | str | bytes | None):
            yield name, value
        elif isinstance(value, np.generic | bytearray | set | frozenset):
            yield name, _text(sorted(value, key=_text) if isinstance(value, set | frozenset) else value)
        elif id(value) in seen:
            continue
        elif isinstance(value, torch.Tensor):
            seen.add(id(value))
            yield name, value
        elif isinstance(value, torch.nn.Module | dict | list | tuple | deque):
            seen.add(id(value))
            held: Any = vars(value) if isinstance(value, torch.nn.Module) else value
            pairs = list(held.items() if isinstance(held, dict) else enumerate(held))
            # The name of a deeply nested value would otherwise take more time than the value.
            name = name if len(name) < LONG_NAME else hashlib.sha256(name.encode()).hexdigest()
            waiting += [(f"{name}.{_text(key, str)}", inner) for key, inner in reversed(pairs)]


def _text(value: Any, of: Callable[[Any], str] = repr) -> str:
    """Returns a text of any object; somebody's own class may fail to give one, or nest too deeply."""
    try:
        return of(value)
    except Exception:
        return type(value).__name__
