"""Error spending against published boundaries and against exact rational crossing probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from smoothheads.certify.spending import look_schedule, sequential_test, spend_boundaries, spending_plan
from smoothheads.errors import ConfigError
from smoothheads.noise.laws import probability_above

LOOKS = (20, 50, 100, 200, 500, 1000)
SPEND = (1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 5e-4)


def exact_crossing(p: Fraction, looks: Sequence[int], counts: Sequence[int]) -> Fraction:
    """Second derivation: vote by vote, no rounding."""
    alive, crossed, seen = {0: Fraction(1)}, Fraction(0), 0
    for look, count in zip(looks, counts, strict=True):
        step, seen = look - seen, look
        law = [comb(step, i) * p**i * (1 - p) ** (step - i) for i in range(step + 1)]
        spread: dict[int, Fraction] = {}
        for votes, mass in alive.items():
            for hits, chance in enumerate(law):
                spread[votes + hits] = spread.get(votes + hits, Fraction(0)) + mass * chance
        crossed += sum((mass for votes, mass in spread.items() if votes >= count), Fraction(0))
        alive = {votes: mass for votes, mass in spread.items() if votes < count}
    return crossed


def float_crossing(p: float, looks: Sequence[int], counts: Sequence[int]) -> float:
    """The same for large looks, with every count kept."""
    alive, crossed, seen = np.ones(1), 0.0, 0
    for look, count in zip(looks, counts, strict=True):
        step, seen = look - seen, look
        alive = np.convolve(alive, stats.binom.pmf(np.arange(step + 1), step, p))
        crossed += float(alive[count:].sum())
        alive = alive[:count]
    return crossed


@pytest.mark.parametrize(
    ("p0", "counts", "crossing"),
    [
        (0.5, (19, 38, 69, 126, 292, 552), 0.000998176),
        (float(special.ndtr(1.0)), (21, 50, 97, 186, 449, 879), 0.000915434),
    ],
)
def test_published_boundaries(p0: float, counts: tuple[int, ...], crossing: float) -> None:
    assert spend_boundaries(p0, LOOKS, SPEND) == counts
    assert float_crossing(p0, LOOKS, counts) == pytest.approx(crossing, abs=5e-10)


def test_tiny_case_in_exact_arithmetic() -> None:
    counts = spend_boundaries(0.5, (5, 10, 20), (0.02, 0.02, 0.02))
    assert counts == (6, 9, 15)
    crossing = exact_crossing(Fraction(1, 2), (5, 10, 20), counts)
    assert float(crossing) == pytest.approx(0.027147293091, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.fractions(Fraction(1, 10), Fraction(99, 100), max_denominator=100), st.integers(0, 3))
def test_error_is_never_exceeded_and_boundaries_are_smallest(p0: Fraction, variant: int) -> None:
    looks = [(6, 12, 24), (10, 11, 40), (8, 16, 24, 32), (30,)][variant]
    plan = spending_plan(0.05, looks)
    counts = spend_boundaries(float(p0), looks, plan)
    assert exact_crossing(p0, looks, counts) <= Fraction(0.05)
    assert exact_crossing(p0 * Fraction(9, 10), looks, counts) <= exact_crossing(p0, looks, counts)
    lower = (counts[0] - 1, *counts[1:])
    assert exact_crossing(p0, looks[:1], lower[:1]) > Fraction(plan[0])


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0, 2.0, 3.0, 3.5])
def test_recommended_plan_spends_nearly_all_and_never_more(ratio: float) -> None:
    looks = look_schedule(20_000, 100)
    p0 = probability_above(ratio, 1.0)
    counts = spend_boundaries(p0, looks, spending_plan(0.001, looks))
    crossing = float_crossing(p0, looks, counts)
    assert crossing <= 0.001
    assert ratio > 3 or crossing > 0.6 * 0.001


def test_looking_fifty_times_without_spending_certifies_a_coin() -> None:
    """Why this module exists: the plain bound at every look, at a nominal 5 %."""
    looks = tuple(range(20, 1001, 20))
    plain = [int(stats.binom.isf(0.05, look, 0.5)) + 1 for look in looks]
    assert float_crossing(0.5, looks, plain) > 0.2
    spent = spend_boundaries(0.5, looks, spending_plan(0.05, looks))
    assert float_crossing(0.5, looks, spent) <= 0.05


def test_mass_cut_off_a_step_is_negligible() -> None:
    for step in (1, 100, 9000):
        for p in (0.5, 0.84, 0.999, 0.99995):
            low, high = stats.binom.ppf(1e-18, step, p), step - stats.binom.ppf(1e-18, step, 1 - p)
            assert stats.binom.cdf(low - 1, step, p) < 2e-18
            assert stats.binom.sf(high, step, p) < 2e-18


def test_schedule() -> None:
    looks = look_schedule(100_000, 100)
    assert looks[0] == 100
    assert looks[-1] == 100_000
    assert all(look % 100 == 0 for look in looks)
    assert max(b / a for a, b in pairwise(looks[10:])) < 1.16
    assert look_schedule(100, 100) == (100,)
    assert look_schedule(150, 100) == (100, 150)


@pytest.mark.parametrize("alpha", [0.001, 0.05])
@pytest.mark.parametrize("looks", [(100,), (50, 100), look_schedule(100_000, 100)])
def test_plan_sums_to_less_than_alpha(alpha: float, looks: tuple[int, ...]) -> None:
    assert alpha * (1 - 1e-8) < sum(spending_plan(alpha, looks)) < alpha


def test_curtailment_only_anticipates_later_looks() -> None:
    test = sequential_test(probability_above(1.0, 1.0), 100_000, 100, 0.001)
    counts = spend_boundaries(probability_above(1.0, 1.0), test.looks, spending_plan(0.001, test.looks))
    for look, count in enumerate(test.certify_at):
        assert count == min(counts[look:])
    assert 84_492 < test.certify_at[-1] < 84_520  # what the fixed n = 1e5 needs, and the price of looking
    assert all(stop < go for stop, go in zip(test.give_up_at, test.certify_at, strict=True))
    assert test.give_up_at[-1] == test.certify_at[-1] - 1


def test_unreachable_claims_are_given_up_at_once() -> None:
    for p0 in (1.0, 0.99999):  # the second would need 7 * 10^5 hits of as many
        test = sequential_test(p0, 100_000, 100, 0.001)
        assert test.certify_at[-1] > 100_000
        assert test.give_up_at == test.looks


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ConfigError):
        sequential_test(0.5, 9, 1, 0.001)


@pytest.mark.parametrize("alpha", [1e-3, 1e-9, 1e-15, 1e-20])
@pytest.mark.parametrize("p0", [0.5, 0.7])
def test_error_is_kept_however_small_alpha_is(alpha: float, p0: float) -> None:
    """All of the distribution, nothing cut off: sums of positive numbers keep their relative precision."""
    looks = look_schedule(2000, 100)
    test = sequential_test(p0, 2000, 100, alpha)
    alive, drawn, crossed = np.ones(1), 0, 0.0
    for look, boundary in zip(looks, test.certify_at, strict=True):
        step = look - drawn
        alive, drawn = np.convolve(alive, stats.binom.pmf(np.arange(step + 1), step, p0)), look
        crossed += float(alive[boundary:].sum())
        alive[boundary:] = 0
    assert 0.5 * alpha < crossed <= alpha
