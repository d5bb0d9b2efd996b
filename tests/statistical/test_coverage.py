"""Every budget keeps its promise on classifiers whose probabilities are known by construction.

Votes are drawn, not computed, so thousands of certificates cost seconds. A promise of error alpha is called
broken when the errors seen have probability below 1e-6 under it; seeds are fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import special, stats

from smoothheads.certify.algorithm import CertifyParams, predict, run_budget, top_class
from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.budgets import AnytimeBudget, Budget, FixedBudget, RadiusBudget, TableBudget
from smoothheads.types import ABSTAIN, Certificate, Counts, Phase

FALSE_ALARM = 1e-6
RUNS = 2500
ALPHA = 0.05  # large, so that errors are frequent enough to be counted


@dataclass(frozen=True)
class Designed:
    """A base classifier with the given class probabilities at the image."""

    shares: tuple[float, ...]
    rng: np.random.Generator

    def __call__(self, phase: Phase, count: int) -> Counts:
        return self.rng.multinomial(count, self.shares)

    @property
    def radius(self) -> float:
        """True radius / sigma: no smaller ball is safe for a classifier with these probabilities at worst."""
        first, second = sorted(self.shares, reverse=True)[:2]
        return max(0.0, float(special.ndtri(first) - special.ndtri(second)) / 2)

    def is_false(self, certificate: Certificate) -> bool:
        wrong_class = self.shares[certificate.prediction] < max(self.shares)
        return not certificate.abstained and (wrong_class or certificate.radius > self.radius)


def errors_are_credible(errors: int, runs: int, alpha: float) -> bool:
    return bool(stats.binom.sf(errors - 1, runs, alpha) > FALSE_ALARM)


def two_classes(p: float) -> tuple[float, float]:
    return (p, 1 - p)


JUST_BELOW_ONE = float(special.ndtr(1.0)) - 1e-9  # the hardest p for a table with radius 1: nearly certified
BUDGETS: dict[str, Budget] = {
    "fixed": FixedBudget(n0=20, n=200),
    "table": TableBudget(radii=(0.0, 0.5, 1.0, 1.5), n0=20, n=2000),
    "table-label-aware": TableBudget(radii=(0.5, 1.0), n=2000, label_aware=True),
    "radius": RadiusBudget(n=2000, tolerance=0.1),
    "anytime": AnytimeBudget(n0=20, n=600),
}


def certificate(name: str, classifier: Designed, correction: float = 0.0) -> Certificate:
    budget = BUDGETS[name]
    params = CertifyParams(
        sigma=1.0,
        alpha=ALPHA,
        correction=correction,
        block=20 if "table" in name else 100,
        label=0 if budget.uses_label else None,
    )
    return budget.certify(classifier, params)


@pytest.mark.parametrize("p", [0.5, 0.6, JUST_BELOW_ONE, 0.97])
@pytest.mark.parametrize("name", BUDGETS)
def test_certificates_of_two_classes(name: str, p: float) -> None:
    rng = np.random.default_rng([1, len(name), int(1000 * p)])
    runs = RUNS if name in ("fixed", "table", "table-label-aware") else RUNS // 5
    classifier = Designed(two_classes(p), rng)
    errors = sum(classifier.is_false(certificate(name, classifier)) for _ in range(runs))
    assert errors_are_credible(errors, runs, ALPHA)


@pytest.mark.parametrize("name", BUDGETS)
def test_every_budget_pays_for_inexact_noise(name: str) -> None:
    """A sampler that makes the top class likelier by 0.1 than exact noise does, and says so."""
    rng = np.random.default_rng(8)
    sampled, exact = Designed((0.9, 0.05, 0.05), rng), Designed((0.8, 0.15, 0.05), rng)
    runs, false = 300, replace(exact, shares=two_classes(0.8)).is_false
    honest = sum(false(certificate(name, sampled, correction=0.1)) for _ in range(runs))
    silent = sum(false(certificate(name, sampled)) for _ in range(runs))
    assert errors_are_credible(honest, runs, ALPHA)
    assert not errors_are_credible(silent, runs, ALPHA)


def test_choosing_the_class_on_the_votes_that_are_bounded_fails() -> None:
    """Ten equal classes, 100 votes, nominal 5 %: the popular shortcut errs about 36 % of the time."""
    classifier = Designed((0.1,) * 10, np.random.default_rng(4))
    shortcut = honest = 0
    for _ in range(1000):
        votes = classifier(Phase.ESTIMATION, 100)
        shortcut += clopper_pearson_lower(int(votes[top_class(votes)]), 100, ALPHA) > 0.1
        honest += FixedBudget(n=100).certify(classifier, CertifyParams(sigma=1.0, alpha=ALPHA)).p_lower > 0.1
    assert 0.3 < shortcut / 1000 < 0.42
    assert not errors_are_credible(shortcut, 1000, ALPHA)
    assert errors_are_credible(honest, 1000, ALPHA)


def test_looking_until_it_succeeds_fails() -> None:
    """A coin flip, 50 looks, nominal 5 %: the plain bound certifies it far too often, the table does not."""
    coin, impatient, patient = Designed((0.5, 0.5), np.random.default_rng(5)), 0, 0
    table = TableBudget(radii=(0.0,), n=1000, label_aware=True)
    params = CertifyParams(sigma=1.0, alpha=ALPHA, block=20, label=0)
    # The first count at each look whose plain bound exceeds one half.
    enough = [int(stats.binom.isf(ALPHA, look, 0.5)) + 1 for look in range(20, 1001, 20)]
    for _ in range(600):
        votes = np.cumsum([coin(Phase.ESTIMATION, 20)[0] for _ in enough])
        impatient += bool(np.any(votes >= enough))
        patient += not table.certify(coin, params).abstained
    assert impatient / 600 > 0.15
    assert errors_are_credible(patient, 600, ALPHA)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.34, 0.33, 0.33), (0.4, 0.4, 0.2)])
def test_predictions(shares: tuple[float, ...]) -> None:
    """Class 0 is G's answer; equal classes are the hardest case, where any other answer is an error."""
    classifier = Designed(shares, np.random.default_rng(6))
    answers = [run_budget(predict(n=100, alpha=ALPHA), classifier).prediction for _ in range(RUNS)]
    errors = sum(answer not in (0, ABSTAIN) for answer in answers)
    assert errors_are_credible(errors, RUNS, ALPHA)


def test_certificates_are_useful() -> None:
    """A bound that always abstained would be valid too."""
    rng = np.random.default_rng(7)
    for name in BUDGETS:
        found = certificate(name, Designed(two_classes(0.97), rng))
        assert found.prediction == 0, name
        assert found.radius > 0.5 * float(special.ndtri(0.97)), name
