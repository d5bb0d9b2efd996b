"""Budgets: how many samples an image gets, and what is concluded from their votes.

`fixed` compares with published tables; `table`, `radius` and `anytime` need fewer samples. A budget is also a
setting: its fields are parameters of `CertifyConfig`.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothheads.certify import algorithm
from smoothheads.certify.algorithm import (
    DAMAGED,
    CertifyParams,
    Run,
    Sampler,
    Samples,
    check_sample_sizes,
    top_class,
)
from smoothheads.certify.bounds import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    max_radius,
    minimum_n,
    p_lower_anytime,
)
from smoothheads.certify.spending import SequentialTest, sequential_test
from smoothheads.config.check import Count, Natural, NotNegative, Positive, check_fields
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise import NoiseLaw
from smoothheads.registry import Registry
from smoothheads.types import ABSTAIN, Certificate, Counts, Phase

Floats = NDArray[np.float64]


class Budget(ABC):
    """Each certificate is wrong with probability at most alpha, whatever the classifier and however many
    samples are spent. A component: a frozen dataclass, registered in BUDGETS."""

    registry: ClassVar[Registry[type[Budget]]]
    name: ClassVar[str]

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def max_samples(self) -> int | None:
        """The most samples that bound a probability (the field `n`); None if only the user ends it."""
        return getattr(self, "n", 0) or None

    @property
    def typical_samples(self) -> int:
        """A rough number of samples per image, for estimates of the time that is left."""
        return (self.max_samples or 100_000) // 10  # docs/budgets.md: about a tenth of the fixed budget

    @property
    def ends(self) -> bool:
        """Says whether it ends by itself on every image."""
        return True

    @property
    def uses_label(self) -> bool:
        """Says whether it tests the true label, which is known in an evaluation only."""
        return getattr(self, "label_aware", False)

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        """The possible numbers of selection samples if the bound is Clopper-Pearson's for one class.

        Empty for another bound: the votes of one class then do not determine the radius.
        """
        return ()

    @abstractmethod
    def check(self, params: CertifyParams) -> None:
        """Raises ConfigError, before the first sample, for a plan that cannot certify anything."""

    @abstractmethod
    def run(self, params: CertifyParams) -> Run[Certificate]:
        """Requests votes as long as it needs them and returns the certificate."""

    def recompute(
        self,
        params: CertifyParams,
        selection: Counts,
        votes: Counts,
        claimed: Certificate,  # noqa: ARG002
    ) -> Certificate:
        """Returns the certificate of stored votes: that of a run to which they are given.

        A budget with more than two requests needs a way of its own. Raises SoundnessError for votes that this
        budget cannot have requested.

        Args:
            params: What the certificate depends on besides the votes.
            selection: Votes of the samples that chose the class.
            votes: Votes of the samples that bound its probability.
            claimed: The certificate that was stored. Where it depends on an order of the votes that is not
                stored, the nearest one that some order gives is returned.
        """
        stored = iter((selection, votes))
        return self.certify(lambda _, __: next(stored), params)

    def certify(self, sample: Sampler, params: CertifyParams) -> Certificate:
        """Runs the budget with votes from a function."""
        return algorithm.run_budget(self.run(params), sample)


BUDGETS: Final[Registry[type[Budget]]] = Registry("budget", "smoothheads.budgets")
Budget.registry = BUDGETS


@BUDGETS.register
@dataclass(frozen=True, kw_only=True)
class FixedBudget(Budget):
    """n samples of every image, as in Cohen et al.: comparable with every published table."""

    name: ClassVar[str] = "fixed"

    n0: Count = 100
    """Samples that choose the class; they never enter the bound."""
    n: Count = 100_000
    """Fresh samples that bound its probability."""

    @property
    def typical_samples(self) -> int:
        return self.n0 + self.n

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        return (self.n0,)

    def check(self, params: CertifyParams) -> None:
        check_sample_sizes(self.n0, self.n, params)

    def run(self, params: CertifyParams) -> Run[Certificate]:
        return algorithm.certify(params, n0=self.n0, n=self.n)


STEP: Final = 0.25  # between the radii of the field's tables


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

    def radii_for(self, params: CertifyParams) -> tuple[float, ...]:
        """Returns the given radii, or steps of a quarter from 0 to the largest that n samples could show."""
        if self.radii is not None:
            return self.radii
        # A larger radius than that of unanimous votes is in no table.
        top = max_radius(self.n, params.alpha, params.sigma, params.law.radius)
        return tuple(STEP * step for step in range(int(top / STEP) + 1))

    def check(self, params: CertifyParams) -> None:
        check_sample_sizes(self.n0, self.n, params)
        # If n votes do not pass the first test, every image would be an abstention.
        least = self.radii_for(params)[0]
        if self._test(least, params).certify_at[-1] > self.n:
            raise ConfigError(f"n = {self.n} cannot certify radius {least:g}: raise n or drop the radius.")

    def run(self, params: CertifyParams) -> Run[Certificate]:
        self.check(params)
        tests = [self._test(radius, params) for radius in self.radii_for(params)]
        # Step 1: n0 samples choose the class, unless the true label is tested.
        target = params.label
        if target is None:
            target = top_class((yield Samples(Phase.SELECTION, self.n0)))
        passed = k = n = 0
        for look, until in enumerate(tests[0].looks):
            # Step 2: fresh samples up to the next look.
            votes = yield Samples(Phase.ESTIMATION, until - n)
            k, n = k + int(votes[target]), until
            # Step 3: pass as many tests in rising order as the votes allow. Each test spends the full alpha
            # over its looks (see `spending`).
            passed = _count_passed(tests, passed, k, look)
            # Step 4: end when all are passed or the next one is hopeless.
            if passed == len(tests) or k <= tests[passed].give_up_at[look]:
                break
        return self._certificate(params, passed, target, k, n)

    def recompute(
        self, params: CertifyParams, selection: Counts, votes: Counts, claimed: Certificate
    ) -> Certificate:
        """Returns the certificate nearest to the claimed one that some order of these votes gives."""
        radii = self.radii_for(params)
        tests = [self._test(radius, params) for radius in radii]
        n0, n, expected = int(selection.sum()), int(votes.sum()), self.n0 if params.label is None else 0
        if n0 != expected or n not in tests[0].looks:
            raise SoundnessError(
                f"Budget table takes {expected} selection samples and ends at one of its looks, but the "
                f"votes are of {n0} and {n} samples. {DAMAGED}"
            )
        # The order of the votes is not stored: of all ends that some order leads to, take the nearest.
        target = params.choose_class(selection)
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
        return Certificate(prediction, radius, p_lower, k, n, 0 if aware else self.n0, label_aware=aware)

    def _test(self, radius: float, params: CertifyParams) -> SequentialTest:
        # Under the sampler p may be larger by the correction than under the exact noise.
        p0 = params.law.probability(radius, params.sigma)
        p0 = math.nextafter(p0 + params.correction, 2.0) if params.correction else p0
        return sequential_test(p0, self.n, min(params.block, self.n), params.alpha)


def _possible_ends(tests: list[SequentialTest], k: int, last: int) -> list[int]:
    """Returns all numbers of tests that can be passed when k votes, in whatever order, end at look `last`.

    Raises SoundnessError if no order ends there.
    """
    # Dynamic programming over the looks: for every number of passed tests, the least and the most votes that
    # can have led to it.
    looks, reached = tests[0].looks, {0: (0, 0)}
    steps = [b - a for a, b in pairwise((0, *looks))]
    for look in range(last):
        following: dict[int, tuple[int, int]] = {}
        for before, (low, high) in reached.items():
            for passed in range(before, len(tests)):  # after the last test it would have ended
                # Enough votes for the tests that are passed and not to give up, too few for the next test.
                needed = [test.certify_at[look] for test in tests[before:passed]]
                least = max(low, tests[passed].give_up_at[look] + 1, *needed)
                most = min(high + steps[look], k, tests[passed].certify_at[look] - 1)
                if least <= most:
                    a, b = following.get(passed, (least, most))
                    following[passed] = min(a, least), max(b, most)
        reached = following
    # At the last look it must have ended with k votes.
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


PILOTS: Final = (100, 500, 2500)
LONG: Final = 20_000  # planned samples above which the largest pilot pays for itself
HOPELESS: Final = 0.01  # level of the test that gives up: its errors cost an abstention, no wrong certificate
LIKELY: Final = 0.1  # error on each side of the interval of p that is planned for


@BUDGETS.register
@dataclass(frozen=True, kw_only=True)
class RadiusBudget(Budget):
    """Comes within TOLERANCE of the radius of n samples: a discarded pilot, then one fresh bound.

    It plans the fewest samples that lose, on average, at most max(tolerance * R, floor * sigma) of the radius
    R of n samples. Pilot samples choose the class and the sample size and never enter the bound, so they cost
    none of alpha, and validity does not depend on the plan.
    """

    name: ClassVar[str] = "radius"

    n: Count = 100_000
    """Fresh samples at most."""
    tolerance: float = 0.05
    """Fraction of the radius that may be lost on average."""
    floor: NotNegative = 0.01
    """Radius, in sigmas, that may be lost in any case."""
    label_aware: bool = False
    """Test the true label instead of a chosen class: cheaper, for evaluation only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tolerance < 1:
            raise ConfigError(f"tolerance is {self.tolerance:g}; choose 0 <= tolerance < 1.")

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        return PILOTS

    def check(self, params: CertifyParams) -> None:
        check_sample_sizes(1, self.n, params)

    def run(self, params: CertifyParams) -> Run[Certificate]:
        self.check(params)
        # Step 1: a pilot chooses the class and plans n; 0 means that the image is hopeless.
        pilot, n = yield from self._pilot(params)
        # Step 2: n fresh samples bound the probability, as in CERTIFY.
        votes = (yield Samples(Phase.ESTIMATION, n)) if n else pilot * 0
        return self._conclude(params, pilot, votes)

    def recompute(
        self,
        params: CertifyParams,
        selection: Counts,
        votes: Counts,
        claimed: Certificate,  # noqa: ARG002
    ) -> Certificate:
        """Returns exactly the certificate of these votes, whether or not the pilot planned so many."""
        n0, n = int(selection.sum()), int(votes.sum())
        if n0 not in PILOTS or n > self.n or (n > 0 and n0 == PILOTS[0]):
            raise SoundnessError(
                f"Budget radius takes a pilot of {', '.join(map(str, PILOTS))} samples and at most {self.n} "
                f"more, but the votes are of {n0} and {n}. {DAMAGED}"
            )
        return self._conclude(params, selection, votes)

    def _conclude(self, params: CertifyParams, pilot: Counts, votes: Counts) -> Certificate:
        target, n0, n = params.choose_class(pilot), int(pilot.sum()), int(votes.sum())
        # Only the fresh votes enter the bound; an image without any is an abstention.
        k = int(votes[target])
        p_lower = clopper_pearson_lower(k, n, params.alpha) if n else 0.0
        return params.certificate(target, k, n, n0, p_lower=p_lower)

    def _pilot(self, params: CertifyParams) -> Generator[Samples, Counts, tuple[Counts, int]]:
        """Returns the votes of the pilot and the planned samples (0: hopeless)."""
        votes = yield Samples(Phase.PILOT, PILOTS[0])
        n = 0
        for size in PILOTS:
            # Enlarge the pilot to the next size.
            seen = int(votes.sum())
            if size > seen:
                votes = votes + (yield Samples(Phase.PILOT, size - seen))
            k = int(votes[params.choose_class(votes)])
            # Give up an image whose class is surely no majority.
            if clopper_pearson_upper(k, size, HOPELESS) < 0.5:
                return votes, 0
            # The first pilot only finds the hopeless ones; a short plan needs no larger pilot.
            if size > PILOTS[0]:
                n = self._plan(k, size, params)
                if n <= LONG:
                    break
        return votes, n

    def _plan(self, k: int, size: int, params: CertifyParams) -> int:
        """Returns enough samples for the worst p of an 80 % interval around k / size, in whole blocks."""
        low, high = clopper_pearson_lower(k, size, LIKELY), clopper_pearson_upper(k, size, LIKELY)
        # Nine values of p that are equally far apart on the variance-stabilised scale asin(sqrt(p)).
        likely = np.sin(np.linspace(math.asin(low**0.5), math.asin(high**0.5), 9)) ** 2
        sizes = samples_for_tolerance(
            likely, self.n, params.alpha, params.law, tolerance=self.tolerance, floor=self.floor
        )
        # Whole blocks, because a part of a block costs as much.
        n = max(int(sizes.max()), minimum_n(params.alpha))
        return min(params.block * -(-n // params.block), self.n)


def expected_radius(p: Floats, n: NDArray[np.int64] | int, alpha: float, law: NoiseLaw) -> Floats:
    """Returns radius / sigma that n samples certify if exactly a fraction p of them votes for the class."""
    # The bound of Clopper and Pearson as in `bounds`, for fractional k and not rounded.
    k = p * n
    lower = np.asarray(special.betaincinv(np.maximum(k, 1e-9), n - k + 1, alpha), dtype=np.float64)
    return np.maximum(law.unit_radius(lower), 0.0)


def samples_for_tolerance(
    p: Floats, n: int, alpha: float, law: NoiseLaw, *, tolerance: float, floor: float
) -> NDArray[np.int64]:
    """Returns the fewest samples whose expected radius is within max(tolerance * R, floor) of that of n.

    Args:
        p: Fractions of the votes, for each of which a number of samples is returned.
        n: The number of samples that would give the radius R.
        alpha: Probability that a bound is wrong.
        law: The noise law, which turns bounds into radii.
        tolerance: Fraction of R that may be lost.
        floor: Radius, in sigmas, that may be lost in any case.
    """
    best = expected_radius(p, n, alpha, law)
    goal = best - np.maximum(tolerance * best, floor)
    # All p are bisected at once.
    low, high = np.zeros(p.shape, np.int64), np.full(p.shape, n, np.int64)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        enough = expected_radius(p, np.maximum(middle, 1), alpha, law) >= goal
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


MOST_ALPHA: Final = 0.3  # below it the evidence falls in p0 wherever it suffices (see p_lower_anytime)


@BUDGETS.register
@dataclass(frozen=True, kw_only=True)
class AnytimeBudget(Budget):
    """Stops when TARGET is certified, after n samples or after SECONDS, whatever comes first.

    With probability at least 1 - alpha all certificates on the way are correct at once, so any reason to stop
    is a good one.
    """

    name: ClassVar[str] = "anytime"

    n0: Count = 100
    """Samples that choose the class; they never enter the bound."""
    n: Natural = 100_000
    """Fresh samples at most; 0 for no limit: only target, seconds or the reader of the stream ends it."""
    target: Positive | None = None
    """Radius at which to stop."""
    seconds: Positive | None = None
    """Time after which to stop, for every image; the certificate that holds then is returned."""

    @property
    def ends(self) -> bool:
        """A target alone may be out of reach, so it does not count."""
        return self.n > 0 or self.seconds is not None

    def check(self, params: CertifyParams) -> None:
        check_sample_sizes(self.n0, self.n or minimum_n(params.alpha), params)
        if not params.alpha <= MOST_ALPHA:
            raise ConfigError(
                f"alpha is {params.alpha:g}; budget anytime needs alpha <= {MOST_ALPHA}, for example 0.001."
            )

    def run(self, params: CertifyParams) -> Run[Certificate]:
        self.check(params)
        started = time.monotonic()
        # Step 1: n0 samples choose the class.
        candidate = top_class((yield Samples(Phase.SELECTION, self.n0)))
        k, n, p_lower, certificate = 0, 0, 0.0, None
        while True:
            # Step 2: one more block of fresh samples. The certificate so far holds whenever the reader stops.
            count = params.block if self.n == 0 else min(params.block, self.n - n)
            votes = yield Samples(Phase.ESTIMATION, count, certificate)
            k, n = k + int(votes[candidate]), n + count
            # Step 3: the running maximum of bounds that all hold at once (Ville's inequality).
            p_lower = max(p_lower, p_lower_anytime(k, n, params.alpha))
            certificate = params.certificate(candidate, k, n, self.n0, p_lower=p_lower)
            # Step 4: any reason to stop is a good one.
            reached = self.target is not None and certificate.radius >= self.target
            late = self.seconds is not None and time.monotonic() - started >= self.seconds
            if reached or late or n == self.n:
                return certificate

    def recompute(
        self, params: CertifyParams, selection: Counts, votes: Counts, claimed: Certificate
    ) -> Certificate:
        """Returns the certificate nearest to the claimed one that some order of these votes gives.

        The running maximum lies between the bound of the totals and that of all hits before all misses.
        """
        candidate, n0, n = top_class(selection), int(selection.sum()), int(votes.sum())
        step, most = params.block, self.n or n
        if n0 != self.n0 or not (0 < n <= most and (n % step == 0 or n == self.n)):
            raise SoundnessError(
                f"Budget anytime takes {self.n0} selection samples and a multiple of {step} others up to "
                f"{most}, but the votes are of {n0} and {n}. {DAMAGED}"
            )
        k = int(votes[candidate])
        # The best order has its k hits first; a bound is computed at whole blocks only.
        early = [m for m in (k // step * step, -(-k // step) * step) if 0 < m < n]
        bounds = [p_lower_anytime(min(k, m), m, params.alpha) for m in (n, *early)]
        # The claimed bound, if it lies between the least and the largest that some order gives.
        p_lower = min(max(bounds[0], claimed.p_lower + params.correction), max(bounds))
        return params.certificate(candidate, k, n, n0, p_lower=p_lower)
