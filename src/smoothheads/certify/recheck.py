"""Random re-evaluation: a secret fraction of all samples goes through the network a second time.

The probe before the first vote cannot find every network that looks at its neighbours in the batch. Here
samples that nobody can predict are evaluated again later, in batches of another composition, order and size.
If the logits of a fraction q of the samples depend on anything but the sample, m re-evaluated samples show it
with probability 1 - (1 - q)^m, and the certification is void.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.soundness import NotAFunctionError, moved

if TYPE_CHECKING:
    from smoothheads.certify.engines.base import Engine, Floats

FLIPS: Final = 1e-3  # rounding may change this fraction of the votes; it changes far fewer
CONFIDENCE: Final = 1e-3  # changed votes void a run if so many are less likely than this at that fraction
COMPANY: Final = 64  # earlier samples that are kept as neighbours for later ones
VOID: Final = "every certificate of this run is void; put it into eval mode and let it keep no state"


class Rechecked(NamedTuple):
    """How many samples were evaluated a second time, and how many votes rounding changed."""

    samples: int = 0
    changed: int = 0


class Recheck:
    """Remembers a secret random fraction of the samples, and evaluates them again when it is told to."""

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

    @property
    def is_full(self) -> bool:
        """Says whether as many samples as a pass has are remembered; more would only take memory."""
        return len(self._samples) >= self.size

    def remember(self, samples_NCHW: Floats, logits_LNC: Floats) -> None:
        """Chooses some samples of a pass, each with the same probability."""
        chosen_N = self._generator.random(logits_LNC.shape[1]) < self.fraction
        for n in np.flatnonzero(chosen_N & np.isfinite(logits_LNC).all((0, 2))):
            self._samples.append(samples_NCHW[n].copy())
            self._logits.append(logits_LNC[:, n].copy())

    def run(self) -> None:
        """Evaluates everything that is remembered a second time, and counts it in `total`.

        Raises NotAFunctionError where logits move by more than rounding, or where more votes change than
        rounding changes.
        """
        if not self._samples:
            return
        order = self._generator.permutation(len(self._samples))
        samples = [self._samples[n] for n in order]
        expected_LMC = np.stack([self._logits[n] for n in order], 1)
        got: list[Floats] = []
        while len(samples) > sum(part.shape[1] for part in got):
            done = sum(part.shape[1] for part in got)
            got.append(self._evaluate(samples[done : done + self._batch_size()]))
        got_LMC = np.concatenate(got, 1)
        self._company = (samples + self._company)[:COMPANY]
        self._samples, self._logits = [], []
        # First test: no logit may move by more than rounding.
        if moved(expected_LMC, got_LMC, self.engine.tolerance):
            worst = float(np.abs(expected_LMC - got_LMC).max())
            raise NotAFunctionError(
                "Noisy images that were evaluated a second time, in another batch, got other logits (by up "
                f"to {worst:.3g}): the network is no function of one image, so {VOID}."
            )
        # Second test: rounding changes a vote only where two classes tie.
        changed = int((self._votes_of(expected_LMC) != self._votes_of(got_LMC)).sum())
        self.total = Rechecked(self.total.samples + len(samples), self.total.changed + changed)
        if clopper_pearson_lower(self.total.changed, self.total.samples, CONFIDENCE) > FLIPS:
            raise NotAFunctionError(
                f"{self.total.changed} of {self.total.samples} noisy images voted otherwise when they were "
                "evaluated a second time, in another batch: the network is no function of one image, so "
                f"{VOID}."
            )

    def _batch_size(self) -> int:
        return int(self._generator.integers(1, self.size + 1))

    def _evaluate(self, samples: list[Floats]) -> Floats:
        """Returns logits [L, M, C] of these samples, evaluated beside samples of other images if possible."""
        batch = samples + self._company[: int(self._generator.integers(0, self.size - len(samples) + 1))]
        if not self._any_batch:  # fill the pass with earlier samples and copies
            fill = [*self._company, *samples]
            batch = (samples + [fill[i % len(fill)] for i in range(self.size)])[: self.size]
        order = self._generator.permutation(len(batch))
        try:
            logits_LNC = self.engine.logits(np.stack([batch[n] for n in order]))
        except Exception:
            if not self._any_batch:
                raise
            self._any_batch = False  # a network that insists on the size of its batch
            return self._evaluate(samples)
        return logits_LNC[:, np.argsort(order)[: len(samples)]]
