"""Small frozen types that the stages hand to each other. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # one image [channels, height, width] of grid integers 0..q
Counts = NDArray[np.int64]  # votes per class [C]

ABSTAIN: Final = -1
ENSEMBLE: Final = "ensemble"


@dataclass(frozen=True, slots=True)
class Grid:
    """Images are integers 0..q and a pixel is m / q in [0, 1]; radii are in these pixel units."""

    q: int


class Phase(IntEnum):
    """What a noise sample is for; part of its key, so that no sample ever serves two purposes."""

    SELECTION = 0
    ESTIMATION = 1
    PILOT = 2
    RANDOMIZED_BOUND = 3
    SCORES = 4


@dataclass(frozen=True, slots=True)
class Votes:
    """Votes of several base classifiers over the same noisy copies, `counts[r, c]` for rule r and class c.

    Each rule (the ensemble, one head, a prefix of heads, a consensus) is a classifier of its own; they share
    the forward pass. Every row sums to the number of copies.
    """

    rules: tuple[str, ...]
    counts: NDArray[np.int64]

    @classmethod
    def none(cls, rules: tuple[str, ...], classes: int) -> Votes:
        return cls(rules, np.zeros((len(rules), classes), dtype=np.int64))

    def of(self, rule: str = ENSEMBLE) -> Counts:
        row: Counts = self.counts[self.rules.index(rule)]
        return row

    @property
    def n(self) -> int:
        return int(self.counts[0].sum())

    def __add__(self, other: Votes) -> Votes:
        if self.rules != other.rules:
            raise ValueError(f"expected votes of the rules {self.rules}, got {other.rules}")
        return Votes(self.rules, self.counts + other.counts)


@dataclass(frozen=True, slots=True)
class Certificate:
    """With probability at least 1 - alpha: if `prediction` is a class, no perturbation of norm below
    `radius` changes the smoothed classifier's answer. The noise decides the norm: l2 if it is Gaussian.
    ABSTAIN has radius 0."""

    prediction: int
    radius: float
    p_lower: float
    k: int
    n: int
    n0: int
    label_aware: bool = False
    """The class was the true label, fixed before sampling: for evaluation, where the label is known."""

    @property
    def abstained(self) -> bool:
        return self.prediction == ABSTAIN
