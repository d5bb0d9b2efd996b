"""What the attacks found: per image, against alpha, and as a curve above the certified one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothheads.certify.radius import squared_grid_budget
from smoothheads.types import ABSTAIN

Floats = NDArray[np.float64]

RHO = 0.001  # a sound ledger is called refuted at most this often


@dataclass(frozen=True, slots=True)
class Claim:
    """What a row of a ledger says: no grid image closer than `radius` is called anything but `prediction`."""

    index: int
    label: int
    prediction: int
    radius: float

    @property
    def correct(self) -> bool:
        return self.prediction == self.label

    @property
    def abstained(self) -> bool:
        return self.prediction == ABSTAIN


@dataclass(frozen=True, slots=True)
class Attacked:
    """A claim and what came of attacking it; squared distances are those of grid integers."""

    claim: Claim
    budget: int
    """The largest squared distance that the claim covers; -1 for an abstention, which claims nothing."""
    inside: int | None = None
    """Squared distance of the farthest attacked image inside; None where nothing was claimed."""
    broken: int | None = None
    """Squared distance of the nearest image that was found to get another class; None: none was found."""
    answer: int | None = None
    """That other class."""

    @property
    def violated(self) -> bool:
        """The other class was found inside the ball."""
        return self.broken is not None and self.broken <= self.budget


@dataclass(frozen=True, slots=True)
class AttackOutcome:
    """All attacked images of a ledger, abstentions included: alpha is the chance of a wrong claim for any
    image, not for those that got one."""

    attacked: tuple[Attacked, ...]
    max_value: int
    level: float
    """The most that a sound certification lets the chance of a violation be, per image: its alpha and that
    of every judgement inside."""

    @property
    def violations(self) -> tuple[Attacked, ...]:
        return tuple(image for image in self.attacked if image.violated)

    @property
    def p_value(self) -> float:
        """Exact binomial test: the chance of as many violations if every certificate keeps its alpha."""
        count = len(self.violations)
        if count == 0:
            return 1.0
        return float(special.bdtrc(count - 1, len(self.attacked), min(self.level, 1.0)))

    @property
    def refuted(self) -> bool:
        return self.p_value < RHO

    def certified_accuracy(self, radii: Sequence[float]) -> Floats:
        """Share of the images that are right and certified at least that far: the lower curve."""
        claims = [image.claim for image in self.attacked]
        return np.array([np.mean([c.correct and c.radius >= r for c in claims]) for r in radii])

    def empirical_accuracy(self, radii: Sequence[float]) -> Floats:
        """Share of the images that are right and were not broken closer than r: the upper curve, falling.

        An abstention is not right; radii beyond those attacked keep the last value.
        """
        budgets = [squared_grid_budget(r, self.max_value) for r in radii]
        right = [image for image in self.attacked if image.claim.correct]
        standing = [
            sum(image.broken is None or image.broken > budget for image in right) for budget in budgets
        ]
        return np.array(standing, dtype=np.float64) / max(len(self.attacked), 1)
