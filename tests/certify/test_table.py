"""The table budget: rising radii, early ends, label-blind unless told."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from smoothheads.certify.algorithm import CertifyParams
from smoothheads.certify.budgets import TableBudget
from smoothheads.certify.spending import sequential_test
from smoothheads.errors import ConfigError
from smoothheads.noise.laws import probability_above
from smoothheads.types import ABSTAIN, Counts, Phase

RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75)


@dataclass
class Biased:
    """Independent votes with known probabilities."""

    shares: tuple[float, ...]
    seed: int = 0
    asked: list[tuple[Phase, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def __call__(self, phase: Phase, count: int) -> Counts:
        self.asked.append((phase, count))
        return self.rng.multinomial(count, self.shares)


def test_all_hits_pass_the_table_with_the_fewest_possible_samples() -> None:
    certificate = TableBudget(radii=RADII).certify(Biased((0.0, 1.0)), CertifyParams(sigma=0.5))
    assert (certificate.prediction, certificate.radius) == (1, 1.75)
    assert 29_691 <= certificate.n <= 36_000  # no method needs fewer: 3.5 sigma takes 29,691 hits
    assert certificate.k == certificate.n
    assert certificate.p_lower == probability_above(1.75, 0.5)


def test_class_comes_from_selection_samples_alone() -> None:
    sample = Biased((0.05, 0.95))
    certificate = TableBudget(radii=(0.0, 0.25), n0=300).certify(sample, CertifyParams(sigma=0.25))
    assert sample.asked[0] == (Phase.SELECTION, 300)
    assert {phase for phase, _ in sample.asked[1:]} == {Phase.ESTIMATION}
    assert sum(count for _, count in sample.asked[1:]) == certificate.n
    assert (certificate.n0, certificate.label_aware) == (300, False)


@pytest.mark.parametrize(
    ("p", "published", "passed"),
    [(0.3, 88, 0), (0.6, 554, 1), (0.8, 1154, 2), (0.9, 1035, 3), (0.99, 6496, 5), (1.0, 33_500, 8)],
)
def test_cost_is_the_published_one(p: float, published: int, passed: int) -> None:
    """Mean samples of label-aware runs; the first look here is at 100 samples, so it cannot be below."""
    table = TableBudget(radii=RADII, label_aware=True)
    certificates = [
        table.certify(Biased((p, 1 - p), seed), CertifyParams(sigma=0.5, label=0)) for seed in range(60)
    ]
    mean = float(np.mean([certificate.n for certificate in certificates]))
    assert mean < max(1.35 * published, 180)
    levels = [sum(r <= c.radius for r in RADII) if not c.abstained else 0 for c in certificates]
    assert float(np.mean(levels)) == pytest.approx(passed, abs=0.1)


def test_label_aware_is_marked_and_ends_wrong_images_early() -> None:
    certificate = TableBudget(radii=RADII, label_aware=True).certify(
        Biased((0.1, 0.9)), CertifyParams(sigma=0.5, label=0)
    )
    assert (certificate.prediction, certificate.n0, certificate.n) == (ABSTAIN, 0, 100)
    assert certificate.label_aware


def test_radii_stop_at_the_first_that_is_not_shown() -> None:
    certificate = TableBudget(radii=RADII).certify(Biased((0.9, 0.1)), CertifyParams(sigma=0.5))
    assert certificate.radius == 0.5  # true radius 0.64
    one = TableBudget(radii=(0.75,)).certify(Biased((0.9, 0.1)), CertifyParams(sigma=0.5))
    assert (one.prediction, one.radius, one.p_lower) == (ABSTAIN, 0.0, 0.0)


def test_correction_raises_the_bar() -> None:
    """What must be shown is p > Phi(r / sigma) + correction, at every look."""
    low, high = sequential_test(0.5, 1000, 100, 0.001), sequential_test(0.51, 1000, 100, 0.001)
    votes = low.certify_at[-1]

    @dataclass
    class Just:
        seen: int = 0

        def __call__(self, phase: Phase, count: int) -> Counts:
            if phase is Phase.SELECTION:
                return np.array([count, 0])
            before, self.seen = self.seen, self.seen + count
            hits = votes * self.seen // 1000 - votes * before // 1000
            return np.array([hits, count - hits])

    assert high.certify_at[-1] > votes
    table = TableBudget(radii=(0.0,), n=1000)
    assert table.certify(Just(), CertifyParams(sigma=1.0)).prediction == 0
    assert table.certify(Just(), CertifyParams(sigma=1.0, correction=0.01)).prediction == ABSTAIN


@pytest.mark.parametrize("radii", [(), (0.5, 0.25), (0.5, 0.5), (-0.1, 0.5)])
def test_radii_must_rise(radii: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="rise"):
        TableBudget(radii=radii)


def test_a_table_that_can_certify_nothing_is_refused_before_sampling() -> None:
    sample = Biased((1.0,))
    with pytest.raises(ConfigError, match="cannot certify radius 1"):
        TableBudget(radii=(1.0,), n=1000).certify(sample, CertifyParams(sigma=0.25))
    assert sample.asked == []
    reachable = TableBudget(radii=(0.0, 1.0), n=1000).certify(sample, CertifyParams(sigma=0.25))
    assert reachable.radius == 0.0
    assert reachable.prediction == 0
