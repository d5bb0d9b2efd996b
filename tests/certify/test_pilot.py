"""The radius budget: planned sizes are the published ones and the pilot never enters the bound."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from smoothheads.certify.algorithm import CertifyParams
from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.budgets import (
    RadiusBudget,
    expected_radius,
    samples_for_tolerance,
)
from smoothheads.errors import ConfigError
from smoothheads.noise import GridGaussian
from smoothheads.noise.laws import l2_radius
from smoothheads.types import ABSTAIN, Counts, Phase

P = np.array([0.55, 0.60, 0.80, 0.90, 0.99, 0.999, 0.9999, 1.0])
NEEDED = [
    (0.01, 0.0, [83843, 70136, 39458, 32396, 37451, 55481, 73197, 85768]),
    (0.02, 0.0, [71309, 51901, 20974, 15825, 19381, 34997, 55441, 73662]),
    (0.05, 0.0, [46887, 25775, 6389, 4369, 5652, 13038, 27657, 47053]),
    (0.1, 0.0, [27115, 11587, 2098, 1362, 1769, 4511, 11293, 22913]),
    (0.2, 0.0, [12405, 4218, 613, 384, 473, 1165, 2916, 6017]),
    (0.0, 0.01, [30457, 30692, 33992, 39139, 61373, 80637, 91076, 96039]),
    (0.0, 0.05, [3925, 3978, 4787, 6276, 17524, 40374, 64670, 81781]),
]


@dataclass
class Biased:
    shares: tuple[float, ...]
    asked: list[tuple[Phase, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, phase: Phase, count: int) -> Counts:
        self.asked.append((phase, count))
        return self.rng.multinomial(count, self.shares)


@pytest.mark.parametrize(("tolerance", "floor", "expected"), NEEDED)
def test_planned_sizes(tolerance: float, floor: float, expected: list[int]) -> None:
    got = samples_for_tolerance(P, 100_000, 0.001, GridGaussian(), tolerance=tolerance, floor=floor)
    assert got.tolist() == expected


def test_expected_radius_of_n() -> None:
    known = [0.1134, 0.2409, 0.8277, 1.2648, 2.2900, 3.0002, 3.4902, 3.8115]
    np.testing.assert_allclose(expected_radius(P, 100_000, 0.001, GridGaussian()), known, atol=5e-5)


def test_bound_is_of_fresh_samples_only() -> None:
    sample = Biased((0.1, 0.9))
    certificate = RadiusBudget(tolerance=0.1).certify(sample, CertifyParams(sigma=0.5))
    pilot = sum(count for phase, count in sample.asked if phase is Phase.PILOT)
    fresh = [count for phase, count in sample.asked if phase is Phase.ESTIMATION]
    assert (certificate.n0, [certificate.n]) == (pilot, fresh)
    assert certificate.radius == l2_radius(clopper_pearson_lower(certificate.k, certificate.n, 0.001), 0.5)
    assert certificate.prediction == 1
    assert certificate.n % 100 == 0
    assert certificate.n < 10_000


def test_hopeless_images_end_with_the_pilot() -> None:
    sample = Biased((0.25, 0.25, 0.25, 0.25))
    certificate = RadiusBudget().certify(sample, CertifyParams(sigma=0.5))
    assert (certificate.prediction, certificate.n, certificate.n0) == (ABSTAIN, 0, 100)
    aware = RadiusBudget(label_aware=True).certify(Biased((0.1, 0.9)), CertifyParams(sigma=0.5, label=0))
    assert (aware.prediction, aware.n0, aware.label_aware) == (ABSTAIN, 100, True)


def test_long_plans_get_a_larger_pilot() -> None:
    certificate = RadiusBudget(tolerance=0.01).certify(Biased((1.0, 0.0)), CertifyParams(sigma=1.0))
    assert certificate.n0 == 2500
    assert certificate.n == pytest.approx(85_800, abs=100)
    assert certificate.radius > 0.99 * 3.8114


def test_wrong_settings_are_refused() -> None:
    for wrong in (
        {"tolerance": 1.0},
        {"floor": -1.0},
        {"n": 0},
    ):
        with pytest.raises(ConfigError):
            RadiusBudget(**wrong)
    with pytest.raises(ConfigError):
        RadiusBudget(n=5).check(CertifyParams(sigma=1.0))
