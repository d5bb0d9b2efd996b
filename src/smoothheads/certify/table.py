"""Which radii of a table are certified, with as few samples as the image needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from smoothheads.certify.algorithm import Sampler, check_label, draw, require_samples, top_class
from smoothheads.certify.spending import SequentialTest, sequential_test
from smoothheads.certify.theorem import GAUSSIAN, Theorem
from smoothheads.errors import ConfigError
from smoothheads.types import ABSTAIN, Certificate, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Certifies the largest of `radii` that it can with at most n_max samples.

    The radii are tested in rising order, each at the full alpha, and the first that is not shown ends it: a
    false certificate must pass the first false radius, so alpha holds for the whole table.
    """

    radii: tuple[float, ...]
    n0: int = 100
    n_max: int = 100_000
    alpha: float = 0.001
    label: int | None = None
    """The true label instead of a chosen class: for evaluation, where it is known; wrong images end early."""
    first: int = 100
    """Samples before the first look; a multiple of the noise's block wastes none."""

    def __post_init__(self) -> None:
        require_samples(self.n0, self.n_max, self.alpha)
        check_label(self.label)
        if not self.radii or self.radii[0] < 0 or any(b <= a for a, b in pairwise(self.radii)):
            raise ConfigError("radii that rise from 0 or more", str(self.radii), "sort them, none twice")

    def certify(
        self, sample: Sampler, *, sigma: float, correction: float = 0.0, theorem: Theorem = GAUSSIAN
    ) -> Certificate:
        require_samples(self.n0, self.n_max, self.alpha, correction)
        tests = [self._test(theorem.probability(radius, sigma), correction) for radius in self.radii]
        if tests[0].certify_at[-1] > self.n_max:
            raise ConfigError(
                f"an n_max that can certify radius {self.radii[0]:g}", str(self.n_max), "raise n_max"
            )
        n0 = self.n0 if self.label is None else 0
        target = top_class(draw(sample, Phase.SELECTION, n0)) if self.label is None else self.label
        passed, k, n = _climb(tests, sample, target)
        radius = self.radii[passed - 1] if passed else 0.0
        p_lower = theorem.probability(radius, sigma) if passed else 0.0
        return Certificate(
            target if passed else ABSTAIN, radius, p_lower, k, n, n0, label_aware=self.label is not None
        )

    def _test(self, p0: float, correction: float) -> SequentialTest:
        p0 = math.nextafter(p0 + correction, 2.0) if correction else p0
        return sequential_test(p0, self.n_max, min(self.first, self.n_max), self.alpha)


def _climb(tests: list[SequentialTest], sample: Sampler, target: int) -> tuple[int, int, int]:
    """How many tests are passed, with which votes of how many samples."""
    passed = k = n = 0
    for look, until in enumerate(tests[0].looks):
        k += int(draw(sample, Phase.ESTIMATION, until - n)[target])
        n = until
        while passed < len(tests) and k >= tests[passed].certify_at[look]:
            passed += 1
        if passed == len(tests) or k <= tests[passed].give_up_at[look]:
            break
    return passed, k, n
