"""CERTIFY and PREDICT on scripted votes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from smoothheads.certify import algorithm
from smoothheads.certify.algorithm import CertifyParams, Prediction, run_budget, two_sided_p_value
from smoothheads.certify.bounds import max_radius
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.types import ABSTAIN, Certificate, Counts, Phase


@dataclass
class Script:
    """Says the given votes for each phase and remembers what it was asked."""

    selection: list[int]
    estimation: list[int]
    asked: list[tuple[Phase, int]] = field(default_factory=list)

    def __call__(self, phase: Phase, count: int) -> Counts:
        self.asked.append((phase, count))
        return np.array(self.selection if phase is Phase.SELECTION else self.estimation, dtype=np.int64)


def certify(
    script: Script, *, sigma: float, n0: int, n: int, alpha: float, correction: float = 0.0
) -> Certificate:
    params = CertifyParams(sigma=sigma, alpha=alpha, correction=correction)
    return run_budget(algorithm.certify(params, n0=n0, n=n), script)


def predict(script: Script, *, n: int, alpha: float, correction: float = 0.0) -> Prediction:
    return run_budget(algorithm.predict(n=n, alpha=alpha, correction=correction), script)


def test_class_comes_from_selection_and_bound_from_fresh_votes() -> None:
    script = Script([3, 7], [60, 40])
    certificate = certify(script, sigma=1.0, n0=10, n=100, alpha=0.001)
    assert script.asked == [(Phase.SELECTION, 10), (Phase.ESTIMATION, 100)]
    assert (certificate.prediction, certificate.k, certificate.radius) == (ABSTAIN, 40, 0.0)


def test_vectors() -> None:
    certificate = certify(Script([0, 9], [1, 99]), sigma=2.0, n0=9, n=100, alpha=0.001)
    assert certificate.prediction == 1
    assert certificate.radius == pytest.approx(2 * 1.34925903881, rel=1e-10)
    assert certificate.p_lower == pytest.approx(0.9113731112960424)
    assert (certificate.k, certificate.n, certificate.n0) == (99, 100, 9)
    assert certify(Script([5, 0], [100, 0]), sigma=1.0, n0=5, n=100, alpha=0.001).radius == max_radius(
        100, 0.001, 1
    )


@pytest.mark.parametrize(("k", "certified"), [(0, False), (65, False), (66, True)])
def test_edges_of_abstention(k: int, certified: bool) -> None:
    certificate = certify(Script([1, 0], [k, 100 - k]), sigma=1.0, n0=1, n=100, alpha=0.001)
    assert certificate.abstained != certified
    assert (certificate.radius > 0) == certified


def test_ties_go_to_the_smallest_class() -> None:
    votes = [0] * 3 + [5] * 20  # many equal classes: an unstable sort would pick another
    assert (
        certify(Script(votes, [0, 0, 0, 40, *[0] * 19]), sigma=1, n0=100, n=40, alpha=0.001).prediction == 3
    )


def test_one_class_problem() -> None:
    assert certify(Script([5], [20]), sigma=1.0, n0=5, n=20, alpha=0.001).prediction == 0
    assert predict(Script([], [20]), n=20, alpha=0.001).prediction == 0


def test_correction_lowers_the_bound() -> None:
    plain = certify(Script([1, 0], [90, 10]), sigma=1.0, n0=1, n=100, alpha=0.001)
    corrected = certify(Script([1, 0], [90, 10]), sigma=1.0, n0=1, n=100, alpha=0.001, correction=0.01)
    assert corrected.p_lower == pytest.approx(plain.p_lower - 0.01)
    assert corrected.radius < plain.radius


@pytest.mark.parametrize("correction", [-1e-3, float("nan"), 0.5])
def test_a_correction_that_would_raise_the_bound_is_refused(correction: float) -> None:
    with pytest.raises(SoundnessError):
        certify(Script([1, 0], [90, 10]), sigma=1.0, n0=1, n=100, alpha=0.001, correction=correction)
    with pytest.raises(SoundnessError):
        predict(Script([], [90, 10]), n=100, alpha=0.001, correction=correction)


@given(st.integers(10, 3000), st.data(), st.sampled_from([0.001, 0.05]))
def test_no_radius_exceeds_the_max_radius(n: int, data: st.DataObject, alpha: float) -> None:
    k = data.draw(st.integers(0, n))
    certificate = certify(Script([1, 0], [k, n - k]), sigma=0.5, n0=1, n=n, alpha=alpha)
    assert 0 <= certificate.radius <= max_radius(n, alpha, 0.5)
    assert certificate.abstained == (certificate.radius == 0)


def test_too_few_samples_are_refused_before_the_first_one() -> None:
    script = Script([1], [9])
    with pytest.raises(ConfigError, match="use n >= 10"):
        certify(script, sigma=1.0, n0=1, n=9, alpha=0.001)
    with pytest.raises(ConfigError):
        predict(script, n=10, alpha=0.001)
    for alpha in (0.0, 0.5, -1.0):
        with pytest.raises(ConfigError):
            certify(script, sigma=1.0, n0=1, n=100, alpha=alpha)
    assert script.asked == []


@pytest.mark.parametrize("votes", [[99, 0], [101, 0], [101, -1], []])
def test_votes_that_do_not_add_up_are_refused(votes: list[int]) -> None:
    """Without this a copy that did not vote (a NaN) would count for or against a class by accident."""
    with pytest.raises(SoundnessError):
        certify(Script([1, 0], votes), sigma=1.0, n0=1, n=100, alpha=0.001)


@pytest.mark.parametrize(
    ("alpha", "m", "smallest"),
    [
        (0.001, 11, 11),
        (0.001, 20, 18),
        (0.001, 50, 37),
        (0.001, 100, 67),
        (0.001, 1000, 553),
        (0.001, 10000, 5166),
        (0.001, 100000, 50521),
        (0.01, 10, 10),
        (0.01, 100, 64),
        (0.01, 1000, 542),
        (0.01, 10000, 5130),
        (0.01, 100000, 50408),
    ],
)
def test_predict_thresholds(alpha: float, m: int, smallest: int) -> None:
    assert predict(Script([], [0, m - smallest, smallest]), n=m, alpha=alpha).prediction == 2
    assert predict(Script([], [0, m - smallest + 1, smallest - 1]), n=m, alpha=alpha).prediction == ABSTAIN


def test_predict_compares_only_the_two_largest() -> None:
    assert predict(Script([], [40, 10, 50]), n=100, alpha=0.001).prediction == ABSTAIN
    assert predict(Script([], [10, 10, 50, *[3] * 10]), n=100, alpha=0.001).prediction == 2


@pytest.mark.parametrize(("n_a", "n_b"), [(10, 10), (10, 0), (37, 13), (5100, 4900), (11, 0)])
def test_p_value_is_scipys(n_a: int, n_b: int) -> None:
    assert two_sided_p_value(n_a, n_b) == pytest.approx(stats.binomtest(n_a, n_a + n_b).pvalue, rel=1e-10)


def test_predict_pays_for_inexact_noise() -> None:
    script = Script([], [0, 33, 67])
    assert predict(script, n=100, alpha=0.001).prediction == 2
    assert predict(script, n=100, alpha=0.001, correction=5e-6).prediction == ABSTAIN
