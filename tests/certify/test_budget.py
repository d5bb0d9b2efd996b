"""Budgets of a fixed size on scripted votes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from smoothheads.certify.algorithm import certify
from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothheads.certify.budget import Fixed, Pair, Randomized
from smoothheads.certify.radius import ceiling, pair_radius
from smoothheads.errors import ConfigError
from smoothheads.types import ABSTAIN, Counts, Phase


@dataclass(frozen=True)
class Shares:
    """Votes in exact proportion."""

    shares: tuple[float, ...]

    def __call__(self, phase: Phase, count: int) -> Counts:
        votes = np.array([round(share * count) for share in self.shares], dtype=np.int64)
        votes[-1] += count - votes.sum()
        return votes


def test_fixed_is_cohens_algorithm() -> None:
    sample = Shares((0.1, 0.9))
    expected = certify(sample, sigma=0.5, n0=10, n=1000, alpha=0.001, correction=1e-12)
    assert Fixed(n0=10, n=1000).certify(sample, sigma=0.5, correction=1e-12) == expected
    assert (Fixed().n0, Fixed().n, Fixed().alpha) == (100, 100_000, 0.001)


def test_randomised_bound_gains_but_never_beyond_the_ceiling() -> None:
    sample, fixed = Shares((0.1, 0.9)), Fixed(n0=10, n=1000)
    plain = fixed.certify(sample, sigma=1.0)
    assert Randomized(n0=10, n=1000, w=1.0).certify(sample, sigma=1.0) == plain
    assert Randomized(n0=10, n=1000, w=0.1).certify(sample, sigma=1.0).radius > plain.radius
    # Uncapped, this w would give probability 1 and an infinite radius.
    lucky = Randomized(n0=10, n=1000, w=0.0005).certify(Shares((0.0, 1.0)), sigma=1.0)
    assert lucky.radius == ceiling(1000, 0.001, 1.0)


def test_pair_bounds_the_runner_up() -> None:
    certificate = Pair(n0=10, n=10_000).certify(Shares((0.2, 0.45, 0.35)), sigma=1.0)
    p_lower = clopper_pearson_lower(4500, 10_000, 0.0005)
    p_upper = clopper_pearson_upper(3500, 10_000, 0.0005)
    assert certificate.prediction == 1
    assert certificate.radius == pair_radius(p_lower, p_upper, 1.0) > 0
    assert Fixed(n0=10, n=10_000).certify(Shares((0.2, 0.45, 0.35)), sigma=1.0).prediction == ABSTAIN
    assert Pair(n0=10, n=10_000).certify(Shares((0.4, 0.4, 0.2)), sigma=1.0).prediction == ABSTAIN


def test_pair_uses_the_complement_where_it_is_smaller() -> None:
    certificate = Pair(n0=10, n=1000).certify(Shares((1.0, 0.0)), sigma=1.0)
    assert certificate.radius == pytest.approx(ceiling(1000, 0.0005, 1.0), rel=1e-9)
    assert Pair(n0=10, n=1000).certify(Shares((1.0,)), sigma=1.0).prediction == 0


def test_wrong_settings_are_refused() -> None:
    for wrong in ({"n": 9}, {"alpha": 0.5}, {"n0": 0}):
        with pytest.raises(ConfigError):
            Fixed(**wrong)
    for w in (0.0, 1.5):
        with pytest.raises(ConfigError):
            Randomized(w=w)
