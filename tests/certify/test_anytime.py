"""The open-ended certificate: its evidence is a martingale, its bound an interval from below."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothheads.certify.anytime import Anytime, log_evidence, p_lower_anytime
from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.errors import ConfigError
from smoothheads.types import Counts, Phase


@settings(max_examples=100, deadline=None)
@given(st.floats(0.5, 0.999), st.integers(0, 300), st.data())
def test_evidence_is_a_fair_game_at_p0(p0: float, n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(round(n * p0), n))
    now, hit, miss = (math.exp(log_evidence(p0, *s)) for s in ((k, n), (k + 1, n + 1), (k, n + 1)))
    assert p0 * hit + (1 - p0) * miss == pytest.approx(now, rel=1e-8)
    assert hit >= miss  # so that any smaller p makes it fall on average


@pytest.mark.parametrize(
    ("p0", "k", "n"), [(0.5, 60, 80), (0.8413, 84_600, 100_000), (0.999, 99_990, 100_000)]
)
def test_evidence_is_the_averaged_likelihood_ratio(p0: float, k: int, n: int) -> None:
    with mpmath.workdps(25):
        p = mpmath.mpf(p0)

        def ratio(angle: mpmath.mpf) -> mpmath.mpf:  # in this angle the prior is uniform
            hit, miss = mpmath.cos(angle) ** 2, mpmath.sin(angle) ** 2
            return mpmath.exp(k * mpmath.log(hit / p) + (n - k) * mpmath.log(miss / (1 - p)))

        cut = mpmath.acos(mpmath.sqrt(p))
        average = mpmath.quad(ratio, mpmath.linspace(0, cut, 15)) / cut
        assert log_evidence(p0, k, n) == pytest.approx(float(mpmath.log(average)), abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(st.integers(10, 3000), st.data(), st.sampled_from([0.001, 0.05, 0.3]))
def test_everything_below_the_bound_is_rejected(n: int, data: st.DataObject, alpha: float) -> None:
    """Were the evidence not monotone, a bisection could jump over a p that is not rejected."""
    k = data.draw(st.integers(n // 2, n))
    bound = p_lower_anytime(k, n, alpha)
    assert bound <= clopper_pearson_lower(k, n, alpha) if k else bound == 0
    for p in np.linspace(0.5, bound, 50) if bound else []:
        assert log_evidence(float(p), k, n) >= -math.log(alpha)
    if bound:
        assert log_evidence(min(bound + 1e-6, 1 - 1e-12), k, n) < -math.log(alpha) + 0.1


def test_evidence_far_from_the_votes_is_none() -> None:
    assert log_evidence(0.9, 1000, 1_000_000) == -math.inf
    assert p_lower_anytime(10, 100, 0.001) == 0.0


class Hits:
    def __call__(self, phase: Phase, count: int) -> Counts:
        return np.array([0, count])


def test_stream_grows_and_stops_at_the_target() -> None:
    stream = list(Anytime(n0=10, target=1.0).stream(Hits(), sigma=0.5))
    radii = [certificate.radius for certificate in stream]
    assert radii == sorted(radii)
    assert radii[-2] < 1.0 <= radii[-1]
    assert [certificate.n for certificate in stream] == [100 * (i + 1) for i in range(len(stream))]
    assert Anytime(n0=10, target=1.0).certify(Hits(), sigma=0.5) == stream[-1]


def test_running_maximum_survives_later_misses() -> None:
    class Turns:
        calls = 0

        def __call__(self, phase: Phase, count: int) -> Counts:
            self.calls += 1
            return np.array([count, 0]) if self.calls <= 3 else np.array([0, count])

    stream = list(Anytime(n0=10, n_max=1000).stream(Turns(), sigma=1.0))
    assert stream[-1].radius == stream[1].radius > 0


def test_wrong_settings_are_refused() -> None:
    for wrong in ({"alpha": 0.4}, {"step": 0}, {"n_max": 3}):
        with pytest.raises(ConfigError):
            Anytime(**wrong)
