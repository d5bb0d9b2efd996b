"""Budgets of a fixed size on scripted votes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from smoothheads.certify.algorithm import CertifyParams, certify, run_budget
from smoothheads.certify.budgets import FixedBudget
from smoothheads.errors import ConfigError
from smoothheads.types import Counts, Phase


@dataclass(frozen=True)
class Shares:
    """Votes in exact proportion."""

    shares: tuple[float, ...]

    def __call__(self, phase: Phase, count: int) -> Counts:
        votes = np.array([round(share * count) for share in self.shares], dtype=np.int64)
        votes[-1] += count - votes.sum()
        return votes


def test_fixed_is_cohens_algorithm() -> None:
    sample, params = Shares((0.1, 0.9)), CertifyParams(sigma=0.5, correction=1e-12)
    expected = run_budget(certify(params, n0=10, n=1000), sample)
    assert FixedBudget(n0=10, n=1000).certify(sample, params) == expected
    assert (FixedBudget().n0, FixedBudget().n, CertifyParams(sigma=1.0).alpha) == (100, 100_000, 0.001)


def test_wrong_settings_are_refused() -> None:
    for n, alpha in ((9, 0.001), (1000, 0.5)):
        with pytest.raises(ConfigError):
            FixedBudget(n=n).check(CertifyParams(sigma=1.0, alpha=alpha))
    with pytest.raises(ConfigError):
        FixedBudget(n0=0)
