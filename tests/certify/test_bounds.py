"""Clopper-Pearson and its randomised form against published vectors and exact rational tails."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothheads.errors import ConfigError

LOWER = [
    (0.001, 0, 100, 0.0),
    (0.001, 50, 100, 0.3447980064253178),
    (0.001, 66, 100, 0.5016499513368726),
    (0.001, 99, 100, 0.9113731112960424),
    (0.001, 100, 100, 0.933254300796991),
    (0.001, 1000, 1000, 0.9931160484209338),
    (0.001, 9900, 10000, 0.9865311593238062),
    (0.001, 10000, 10000, 0.9993094630025899),
    (0.001, 0, 100000, 0.0),
    (0.001, 50000, 100000, 0.4951090429036959),
    (0.001, 50489, 100000, 0.4999989484886355),
    (0.001, 50490, 100000, 0.5000089487744036),
    (0.001, 60000, 100000, 0.5952010472945845),
    (0.001, 80000, 100000, 0.7960660711927275),
    (0.001, 90000, 100000, 0.8970364962238291),
    (0.001, 99000, 100000, 0.9889893403774748),
    (0.001, 99900, 100000, 0.9986509924467531),
    (0.001, 99990, 100000, 0.9997586773435912),
    (0.001, 99999, 100000, 0.9999076696662654),
    (0.001, 100000, 100000, 0.9999309248330094),
    (0.0005, 100000, 100000, 0.9999239938640173),
    (0.001, 1000000, 1000000, 0.9999930922685795),
    (0.01, 80, 100, 0.6907912865934347),
    (0.05, 10, 10, 0.7411344491069477),
]


def exact_tail(k: int, n: int, p: float) -> Fraction:
    """P(Bin(n, p) >= k), no rounding anywhere."""
    hit = Fraction(p)
    return sum((comb(n, i) * hit**i * (1 - hit) ** (n - i) for i in range(k, n + 1)), Fraction(0))


@pytest.mark.parametrize(("alpha", "k", "n", "expected"), LOWER)
def test_lower_bound_is_the_published_one_rounded_down(alpha: float, k: int, n: int, expected: float) -> None:
    bound = clopper_pearson_lower(k, n, alpha)
    assert bound == pytest.approx(expected, rel=2e-14, abs=0)
    assert bound <= expected


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 60), st.data(), st.sampled_from([0.001, 0.01, 0.05, 0.3, 1e-9]))
def test_lower_bound_holds_in_exact_arithmetic_and_is_tight(
    n: int, data: st.DataObject, alpha: float
) -> None:
    k = data.draw(st.integers(1, n))
    bound = clopper_pearson_lower(k, n, alpha)
    assert exact_tail(k, n, bound) <= Fraction(alpha) < exact_tail(k, n, min(1.0, bound * (1 + 1e-13)))


@pytest.mark.parametrize(("alpha", "k", "n", "expected"), [v for v in LOWER if v[1] > 0 and v[2] >= 10000])
def test_large_samples_hold_at_forty_digits(alpha: float, k: int, n: int, expected: float) -> None:
    with mpmath.workdps(40):
        p = mpmath.mpf(clopper_pearson_lower(k, n, alpha))
        misses = mpmath.mpf(0)  # P(Bin(n, 1-p) <= n-k), summed from its largest term down
        term = mpmath.binomial(n, n - k) * (1 - p) ** (n - k) * p**k
        for miss in range(n - k, -1, -1):
            misses += term
            term = term * miss / (n - miss + 1) * p / (1 - p)
            if term < misses * mpmath.mpf(10) ** -30:
                break
        assert misses <= mpmath.mpf(alpha)


def test_without_rounding_some_bounds_would_be_too_high() -> None:
    """The guard is needed: the plain inverse violates its own inequality about half the time."""
    from scipy import special

    plain = [float(special.betaincinv(k, 50 - k + 1, 0.001)) for k in range(1, 50)]
    broken = sum(exact_tail(k, 50, p) > Fraction(0.001) for k, p in enumerate(plain, 1))
    assert broken > 5


@given(st.integers(1, 2000), st.data(), st.sampled_from([0.001, 0.05]))
def test_monotone_in_votes_and_alpha(n: int, data: st.DataObject, alpha: float) -> None:
    k = data.draw(st.integers(0, n - 1))
    assert clopper_pearson_lower(k, n, alpha) < clopper_pearson_lower(k + 1, n, alpha)
    assert clopper_pearson_lower(k, n, alpha / 2) <= clopper_pearson_lower(k, n, alpha)
    assert clopper_pearson_upper(k, n, alpha) <= clopper_pearson_upper(k + 1, n, alpha)
    assert clopper_pearson_lower(k, n, alpha) < clopper_pearson_upper(k, n, alpha)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.data())
def test_upper_bound_holds_in_exact_arithmetic(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n - 1))
    assert 1 - exact_tail(k + 1, n, clopper_pearson_upper(k, n, 0.01)) <= Fraction(0.01)
    assert clopper_pearson_upper(n, n, 0.01) == 1.0


@pytest.mark.parametrize(
    ("k", "n", "alpha"), [(-1, 10, 0.1), (11, 10, 0.1), (0, 0, 0.1), (5, 10, 0.0), (5, 10, 0.5)]
)
def test_nonsense_is_refused(k: int, n: int, alpha: float) -> None:
    with pytest.raises(ConfigError):
        clopper_pearson_lower(k, n, alpha)
