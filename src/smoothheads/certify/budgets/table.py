"""Which radii of a table are certified, with as few samples as the image needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from smoothheads.certify.algorithm import DAMAGED, CertifyParams, Run, Samples, check_sample_sizes, top_class
from smoothheads.certify.bounds import max_radius
from smoothheads.certify.budgets.base import BUDGETS, Budget
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
            raise ConfigError(
                f"radii are {self.radii}; give finite radii that rise from 0 or more, none twice."
            )

    @property
    def max_samples(self) -> int:
        return self.n

    @property
    def uses_label(self) -> bool:
        return self.label_aware

    def radii_for(self, params: CertifyParams) -> tuple[float, ...]:
        """Returns the given radii, or steps of a quarter from 0 to the largest that n samples could show."""
        if self.radii is not None:
            return self.radii
        top = max_radius(self.n, params.alpha, params.sigma, params.law.radius)
        return tuple(STEP * step for step in range(int(top / STEP) + 1))

    def check(self, params: CertifyParams) -> None:
        check_sample_sizes(self.n0, self.n, params)
        least = self.radii_for(params)[0]
        if self._test(least, params).certify_at[-1] > self.n:
            raise ConfigError(f"n = {self.n} cannot certify radius {least:g}: raise n or drop the radius.")

    def run(self, params: CertifyParams) -> Run[Certificate]:
        self.check(params)
        tests = self._tests(params)
        # Step 1: n0 samples choose the class, unless the true label is tested.
        target = params.label
        if target is None:
            target = top_class((yield Samples(Phase.SELECTION, self.n0)))
        # Step 2: at every look, pass as many tests in rising order as the votes allow; end when all are
        # passed or the next one is hopeless. Each test spends the full alpha over its looks (see `spending`).
        passed = k = n = 0
        for look, until in enumerate(tests[0].looks):
            votes = yield Samples(Phase.ESTIMATION, until - n)
            k, n = k + int(votes[target]), until
            passed = _count_passed(tests, passed, k, look)
            if passed == len(tests) or k <= tests[passed].give_up_at[look]:
                break
        return self._certificate(params, passed, target, k, n)

    def recompute(
        self, params: CertifyParams, selection: Counts, votes: Counts, claimed: Certificate
    ) -> Certificate:
        """Returns the certificate nearest to the claimed one that some order of these votes gives."""
        n0, n, tests = int(selection.sum()), int(votes.sum()), self._tests(params)
        expected = self.n0 if params.label is None else 0
        if n0 != expected or n not in tests[0].looks:
            raise SoundnessError(
                f"Budget table takes {expected} selection samples and ends at one of its looks, but the "
                f"votes are of {n0} and {n} samples. {DAMAGED}"
            )
        target, radii = params.choose_class(selection), self.radii_for(params)
        k = int(votes[target])
        ends = _possible_ends(tests, k, tests[0].looks.index(n))
        radius = -1.0 if claimed.abstained else claimed.radius
        passed = min(ends, key=lambda end: abs((radii[end - 1] if end else -1.0) - radius))
        return self._certificate(params, passed, target, k, n)

    def _certificate(self, params: CertifyParams, passed: int, target: int, k: int, n: int) -> Certificate:
        """Returns the certificate of passed tests: they, and no bound, show the radius, 0 included."""
        radius = self.radii_for(params)[passed - 1] if passed else 0.0
        p_lower = params.law.probability(radius, params.sigma) if passed else 0.0
        prediction, aware = target if passed else ABSTAIN, params.label is not None
        n0 = 0 if aware else self.n0
        return Certificate(prediction, radius, p_lower, k, n, n0, label_aware=aware)

    def _tests(self, params: CertifyParams) -> list[SequentialTest]:
        return [self._test(radius, params) for radius in self.radii_for(params)]

    def _test(self, radius: float, params: CertifyParams) -> SequentialTest:
        p0 = params.law.probability(radius, params.sigma)
        p0 = math.nextafter(p0 + params.correction, 2.0) if params.correction else p0
        return sequential_test(p0, self.n, min(params.block, self.n), params.alpha)


def _possible_ends(tests: list[SequentialTest], k: int, last: int) -> list[int]:
    """Returns all numbers of tests that can be passed when k votes, in whatever order, end at look `last`.

    Dynamic programming over the looks: for every number of passed tests, the least and the most votes that
    can have led to it. Raises SoundnessError if no order ends there.
    """
    looks, reached = tests[0].looks, {0: (0, 0)}
    steps = [b - a for a, b in pairwise((0, *looks))]
    for look in range(last):
        following: dict[int, tuple[int, int]] = {}
        for before, (low, high) in reached.items():
            for passed in range(before, len(tests)):  # after the last test it would have ended
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
        for passed in [_count_passed(tests, before, k, last)]
        if passed == len(tests) or k <= tests[passed].give_up_at[last] or last == len(looks) - 1
    ]
    if not ends:
        raise SoundnessError(
            f"With {k} votes budget table does not end after {looks[last]} samples. {DAMAGED}"
        )
    return ends


def _count_passed(tests: list[SequentialTest], passed: int, k: int, look: int) -> int:
    """Returns how many tests are passed after a look with k votes, of which `passed` were before."""
    while passed < len(tests) and k >= tests[passed].certify_at[look]:
        passed += 1
    return passed
