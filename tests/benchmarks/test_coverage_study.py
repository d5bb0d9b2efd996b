from __future__ import annotations

import numpy as np
import pytest
from benchmarks.coverage import BUDGETS, Count, Designed, N, count_errors, network_runs, plot, summary, truths
from scipy import stats

from smoothheads.types import ABSTAIN, Certificate


def certificate(prediction: int, radius: float) -> Certificate:
    return Certificate(prediction, radius, 0.9, 90, 100, 100)


def test_what_is_false() -> None:
    classifier = Designed((0.8413447, 0.1586553), np.random.default_rng(0))  # true radius 1
    assert classifier.radius == pytest.approx(1.0, abs=1e-6)
    assert not classifier.is_false(certificate(0, 0.99))
    assert classifier.is_false(certificate(0, 1.01))
    assert classifier.is_false(certificate(1, 0.01))
    assert not classifier.is_false(certificate(ABSTAIN, 0.0))


@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_clopper_pearson_errs_with_probability_alpha_at_its_own_values(alpha: float) -> None:
    for k in (8 * N // 10, N):
        p = truths(alpha)[f"bound of {k:,}"][0]
        assert stats.binom.sf(k - 1, N, p) == pytest.approx(alpha, rel=1e-6)


def test_a_broken_promise_is_seen() -> None:
    """A bound at level 0.05 that is sold as one at 0.001."""
    shares = truths(0.05)["bound of 8,000"]
    errors = count_errors(BUDGETS["fixed"], 0.05, shares, 400, np.random.default_rng(1))
    assert Count("fixed", "", 0.05, 400, errors).kept
    assert not Count("fixed", "", 0.001, 400, errors).kept


def test_counts_know_their_interval_and_test() -> None:
    count = Count("fixed", "p", 0.05, 100, 5)
    low, high = count.interval
    assert stats.binom.sf(4, 100, low) == pytest.approx(0.025)
    assert stats.binom.cdf(5, 100, high) == pytest.approx(0.025)
    assert count.p_value == pytest.approx(1 - stats.binom.cdf(4, 100, 0.05))
    assert Count("fixed", "p", 0.05, 100, 0).p_value == 1


def test_summary_shows_every_budget_and_the_worst_count() -> None:
    counts = [
        Count("a", "x", 0.05, 100, 5),
        Count("a", "y", 0.05, 100, 10),
        Count("b", "x", 0.05, 100, 0),
        Count("b", "y", 0.05, 100, 0),
    ]
    rows = [[cell.text for cell in row] for row in summary(counts, "title").rows]
    assert [row[:4] for row in rows] == [["a", "100", "1.000", "2.000"], ["b", "100", "0.000", "0.000"]]
    assert rows[0][-1] == f"{counts[1].p_value:.2g}"
    assert len(plot(counts).axes) == 1


def test_every_budget_runs() -> None:
    for name, budget in BUDGETS.items():
        errors = count_errors(budget, 0.05, truths(0.05)["below radius 1"], 20, np.random.default_rng(2))
        assert Count(name, "", 0.05, 20, errors).kept


def test_linear_network_through_the_real_path() -> None:
    counts = list(network_runs(20, per_seed=10))
    assert {each.budget for each in counts} >= {"fixed", "table", "radius", "anytime"}
    assert all(each.runs == 20 and each.kept for each in counts)
