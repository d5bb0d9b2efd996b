"""Budgets of a fixed size on scripted votes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from smoothheads.certify.algorithm import Bound, Terms, answered, certify
from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothheads.certify.budgets import FixedBudget
from smoothheads.certify.radius import max_radius
from smoothheads.errors import ConfigError
from smoothheads.noise.l2 import pair_radius
from smoothheads.types import ABSTAIN, Certificate, Counts, Phase


@dataclass(frozen=True)
class Shares:
    """Votes in exact proportion."""

    shares: tuple[float, ...]

    def __call__(self, phase: Phase, count: int) -> Counts:
        votes = np.array([round(share * count) for share in self.shares], dtype=np.int64)
        votes[-1] += count - votes.sum()
        return votes


def fixed(shares: tuple[float, ...], n: int, bound: Bound = "clopper-pearson", w: float = 1.0) -> Certificate:
    return FixedBudget(n0=10, n=n, bound=bound).certify(Shares(shares), Terms(sigma=1.0, w=w))


def test_fixed_is_cohens_algorithm() -> None:
    sample, terms = Shares((0.1, 0.9)), Terms(sigma=0.5, correction=1e-12)
    expected = answered(certify(terms, n0=10, n=1000), sample)
    assert FixedBudget(n0=10, n=1000).certify(sample, terms) == expected
    assert (FixedBudget().n0, FixedBudget().n, Terms(sigma=1.0).alpha) == (100, 100_000, 0.001)


def test_randomised_bound_gains_but_never_beyond_the_largest_radius() -> None:
    plain = fixed((0.1, 0.9), 1000)
    assert fixed((0.1, 0.9), 1000, "randomized", w=1.0) == plain
    assert fixed((0.1, 0.9), 1000, "randomized", w=0.1).radius > plain.radius
    # Uncapped, this w would give probability 1 and an infinite radius.
    lucky = fixed((0.0, 1.0), 1000, "randomized", w=0.0005)
    assert lucky.radius == max_radius(1000, 0.001, 1.0)


def test_pair_bounds_the_runner_up() -> None:
    certificate = fixed((0.2, 0.45, 0.35), 10_000, "pair")
    p_lower = clopper_pearson_lower(4500, 10_000, 0.0005)
    p_upper = clopper_pearson_upper(3500, 10_000, 0.0005)
    assert certificate.prediction == 1
    assert certificate.radius == pair_radius(p_lower, p_upper, 1.0) > 0
    assert fixed((0.2, 0.45, 0.35), 10_000).prediction == ABSTAIN
    assert fixed((0.4, 0.4, 0.2), 10_000, "pair").prediction == ABSTAIN


def test_pair_uses_the_complement_where_it_is_smaller() -> None:
    assert fixed((1.0, 0.0), 1000, "pair").radius == pytest.approx(max_radius(1000, 0.0005, 1.0), rel=1e-9)
    assert fixed((1.0,), 1000, "pair").prediction == 0


def test_wrong_settings_are_refused() -> None:
    for n, alpha in ((9, 0.001), (1000, 0.5)):
        with pytest.raises(ConfigError):
            FixedBudget(n=n).check(Terms(sigma=1.0, alpha=alpha))
    with pytest.raises(ConfigError):
        FixedBudget(n0=0)
    with pytest.raises(ConfigError):
        fixed((0.1, 0.9), 1000, "randomized", w=1.5)
