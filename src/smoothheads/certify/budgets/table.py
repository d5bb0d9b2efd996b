"""Which radii of a table are certified, with as few samples as the image needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from smoothheads.certify.algorithm import DAMAGED, Run, Samples, Terms, require_samples, top_class
from smoothheads.certify.budgets.base import BUDGETS, Budget
from smoothheads.certify.radius import max_radius
from smoothheads.certify.spending import SequentialTest, sequential_test
from smoothheads.config.check import Count
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.types import ABSTAIN, Certificate, Counts, Phase

STEP = 0.25  # between the radii of the field's tables


@BUDGETS.register
@dataclass(frozen=True, kw_only=True)
class TableBudget(Budget):
    """Decides only which of RADII are certified: at most n samples, ten times fewer on average.

    The radii are tested in rising order, each at the full alpha, and the first that is not shown ends it: a
    false certificate must pass the first false radius, so alpha holds for the whole table.
    """

    name: ClassVar[str] = "table"

    n0: Count = 100
    """Samples that choose the class; they never enter the tests."""
    n: Count = 100_000
    """Fresh samples at most."""
    radii: tuple[float, ...] | None = None
    """Default: steps of a quarter from 0 up to what n can show."""
    label_aware: bool = False
    """Test the true label instead of a chosen class: cheaper, for evaluation only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = (0.0,) if self.radii is None else self.radii
        rising = all(a < b for a, b in pairwise(given))
        if not given or not given[0] >= 0 or not rising or not math.isfinite(given[-1]):
            raise ConfigError("radii that rise from 0 or more", str(self.radii), "sort them, none twice")

    @property
    def max_samples(self) -> int:
        return self.n

    @property
    def uses_label(self) -> bool:
        return self.label_aware

    def radii_for(self, terms: Terms) -> tuple[float, ...]:
        """As told, or steps of a quarter from 0 to the largest that n samples could show."""
        if self.radii is not None:
            return self.radii
        top = max_radius(self.n, terms.alpha, terms.sigma, terms.law.radius)
        return tuple(STEP * step for step in range(int(top / STEP) + 1))

    def check(self, terms: Terms) -> None:
        require_samples(self.n0, self.n, terms.alpha, terms.correction)
        least = self.radii_for(terms)[0]
        if self._test(least, terms).certify_at[-1] > self.n:
            raise ConfigError(f"an n that can certify radius {least:g}", str(self.n), "raise n")

    def run(self, terms: Terms) -> Run[Certificate]:
        self.check(terms)
        tests = self._tests(terms)
        target = terms.label
        if target is None:
            target = top_class((yield Samples(Phase.SELECTION, self.n0)))
        passed = k = n = 0
        for look, until in enumerate(tests[0].looks):
            votes = yield Samples(Phase.ESTIMATION, until - n)
            k, n = k + int(votes[target]), until
            passed = _climbed(tests, passed, k, look)
            if passed == len(tests) or k <= tests[passed].give_up_at[look]:
                break
        return self._certificate(terms, passed, target, k, n)

    def recompute(self, terms: Terms, selection: Counts, votes: Counts, claimed: Certificate) -> Certificate:
        """Of all that some order of these votes passes before it ends here, the nearest to the claimed."""
        n0, n, tests = int(selection.sum()), int(votes.sum()), self._tests(terms)
        wanted = self.n0 if terms.label is None else 0
        if n0 != wanted or n not in tests[0].looks:
            raise SoundnessError(
                f"{wanted} selection samples and as many others as at a look of the table budget",
                f"{n0} and {n}",
                DAMAGED,
            )
        target, radii = terms.chosen(selection), self.radii_for(terms)
        k = int(votes[target])
        ends = _possible_ends(tests, k, tests[0].looks.index(n))
        said = -1.0 if claimed.abstained else claimed.radius
        passed = min(ends, key=lambda end: abs((radii[end - 1] if end else -1.0) - said))
        return self._certificate(terms, passed, target, k, n)

    def _certificate(self, terms: Terms, passed: int, target: int, k: int, n: int) -> Certificate:
        """No bound but a passed test is what shows the radius, 0 included."""
        radius = self.radii_for(terms)[passed - 1] if passed else 0.0
        p_lower = terms.law.probability(radius, terms.sigma) if passed else 0.0
        prediction, aware = target if passed else ABSTAIN, terms.label is not None
        n0 = 0 if aware else self.n0
        return Certificate(prediction, radius, p_lower, k, n, n0, label_aware=aware)

    def _tests(self, terms: Terms) -> list[SequentialTest]:
        return [self._test(radius, terms) for radius in self.radii_for(terms)]

    def _test(self, radius: float, terms: Terms) -> SequentialTest:
        p0 = terms.law.probability(radius, terms.sigma)
        p0 = math.nextafter(p0 + terms.correction, 2.0) if terms.correction else p0
        return sequential_test(p0, self.n, min(terms.block, self.n), terms.alpha)


def _possible_ends(tests: list[SequentialTest], k: int, last: int) -> list[int]:
    """How many tests are passed when k votes, in whatever order, end at look `last`: all that can be.

    Kept for every number of passed tests: the least and the most votes that can have led to it so far. Raises
    SoundnessError if no order ends there.
    """
    looks, reached = tests[0].looks, {0: (0, 0)}
    steps = [b - a for a, b in pairwise((0, *looks))]
    for look in range(last):
        following: dict[int, tuple[int, int]] = {}
        for before, (low, high) in reached.items():
            for passed in range(before, len(tests)):  # who passed all would have ended
                needed = [test.certify_at[look] for test in tests[before:passed]]
                least = max(low, tests[passed].give_up_at[look] + 1, *needed)
                most = min(high + steps[look], k, tests[passed].certify_at[look] - 1)
                if least <= most:
                    a, b = following.get(passed, (least, most))
                    following[passed] = min(a, least), max(b, most)
        reached = following
    ends = [
        passed
        for before, (low, high) in reached.items()
        if low <= k <= high + steps[last]
        for passed in [_climbed(tests, before, k, last)]
        if passed == len(tests) or k <= tests[passed].give_up_at[last] or last == len(looks) - 1
    ]
    if not ends:
        raise SoundnessError(
            f"votes with which the table budget ends after {looks[last]} samples",
            f"{k} votes, with which it ends earlier or goes on",
            DAMAGED,
        )
    return ends


def _climbed(tests: list[SequentialTest], passed: int, k: int, look: int) -> int:
    while passed < len(tests) and k >= tests[passed].certify_at[look]:
        passed += 1
    return passed
