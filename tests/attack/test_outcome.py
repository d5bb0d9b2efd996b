from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from smoothheads.attack.outcome import Attacked, AttackOutcome, Claim
from smoothheads.certify.bounds import squared_grid_budget
from smoothheads.types import ABSTAIN

Q = 16


def attacked(radius: float, broken: int | None = None, *, label: int = 0, prediction: int = 0) -> Attacked:
    claim = Claim(0, label, prediction, radius)
    budget = squared_grid_budget(radius, Q)
    return Attacked(claim, budget, budget, broken, None if broken is None else 1)


def outcome(*each: Attacked, level: float = 0.003) -> AttackOutcome:
    return AttackOutcome(each, Q, level)


def test_a_violation_is_another_answer_strictly_closer_than_the_radius() -> None:
    assert attacked(0.5, 63).violated
    assert not attacked(0.5, 64).violated  # at exactly 8 / 16: nothing is claimed there
    assert not attacked(0.5).violated
    assert not Attacked(Claim(0, 0, ABSTAIN, 0.0), -1).violated


@pytest.mark.parametrize(("count", "images"), [(0, 5), (1, 1), (3, 100), (4, 100), (5, 5)])
def test_the_p_value_is_the_exact_binomial_tail(count: int, images: int) -> None:
    found = outcome(*[attacked(0.5, 1)] * count, *[attacked(0.5)] * (images - count))
    assert len(found.violations) == count
    assert found.p_value == pytest.approx(stats.binom.sf(count - 1, images, 0.003))
    assert found.refuted == (count >= 4)


def test_abstentions_count_as_images_of_the_test() -> None:
    """Alpha bounds a wrong claim for any image; among those that got one it may be more frequent."""
    abstained = [Attacked(Claim(0, 0, ABSTAIN, 0.0), -1)] * 99
    assert outcome(attacked(0.5, 1), *abstained).p_value == pytest.approx(1 - 0.997**100)


def test_the_two_curves() -> None:
    found = outcome(
        attacked(0.5, 256),  # broken at distance 1
        attacked(0.25),
        attacked(0.5, 100, label=1),  # certified, but wrong
        Attacked(Claim(0, 0, ABSTAIN, 0.0), -1),
    )
    radii = [0.0, 0.25, 0.3, 0.5, 1.0, 1.0001, 9.0]
    assert found.certified_accuracy(radii).tolist() == [0.5, 0.5, 0.25, 0.25, 0, 0, 0]
    assert found.empirical_accuracy(radii).tolist() == [0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]


ROWS = st.builds(
    attacked,
    st.floats(0.01, 3),
    st.none() | st.integers(1, 3000),
    label=st.integers(0, 1),
)


@given(st.lists(ROWS, min_size=1), st.lists(st.floats(0, 4), min_size=2))
def test_the_upper_curve_falls_and_stays_above_the_lower_one(
    rows: list[Attacked], radii: list[float]
) -> None:
    found = outcome(*rows)
    radii = sorted(radii)
    low, high = found.certified_accuracy(radii), found.empirical_accuracy(radii)
    assert (np.diff(high) <= 0).all()
    assert (np.diff(low) <= 0).all()
    if not found.violations:
        assert (low <= high).all()
