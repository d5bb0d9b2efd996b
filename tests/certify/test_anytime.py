"""The open-ended certificate: its evidence is a martingale, its bound an interval from below."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothheads.certify.algorithm import CertifyParams, Sampler
from smoothheads.certify.bounds import clopper_pearson_lower, log_evidence, p_lower_anytime
from smoothheads.certify.budgets import AnytimeBudget
from smoothheads.errors import ConfigError
from smoothheads.types import Certificate, Counts, Phase


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


def stream_of(budget: AnytimeBudget, sample: Sampler, sigma: float) -> list[Certificate]:
    """What holds on the way and at the end."""
    run, stream = budget.run(CertifyParams(sigma=sigma)), []
    try:
        wanted = next(run)
        while True:
            wanted = run.send(sample(wanted.phase, wanted.count))
            stream += [wanted.partial] if wanted.partial else []
    except StopIteration as end:
        return [*stream, end.value]


def test_stream_grows_and_stops_at_the_target() -> None:
    budget = AnytimeBudget(n0=10, target=1.0)
    stream = stream_of(budget, Hits(), 0.5)
    radii = [certificate.radius for certificate in stream]
    assert radii == sorted(radii)
    assert radii[-2] < 1.0 <= radii[-1]
    assert [certificate.n for certificate in stream] == [100 * (i + 1) for i in range(len(stream))]
    assert budget.certify(Hits(), CertifyParams(sigma=0.5)) == stream[-1]


def test_running_maximum_survives_later_misses() -> None:
    class Turns:
        calls = 0

        def __call__(self, phase: Phase, count: int) -> Counts:
            self.calls += 1
            return np.array([count, 0]) if self.calls <= 3 else np.array([0, count])

    stream = stream_of(AnytimeBudget(n0=10, n=1000), Turns(), 1.0)
    assert stream[-1].radius == stream[1].radius > 0


def test_without_n_it_goes_on_until_target_or_time() -> None:
    assert not AnytimeBudget(n=0).ends
    assert not AnytimeBudget(n=0, target=1.0).ends
    assert AnytimeBudget(n=0, target=3.0).certify(Hits(), CertifyParams(sigma=1.0)).radius >= 3.0
    timed = AnytimeBudget(n=0, seconds=0.05)
    assert timed.ends
    assert timed.certify(Hits(), CertifyParams(sigma=1.0)).n >= 100


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf])
def test_a_target_that_is_no_radius_is_refused(target: float) -> None:
    with pytest.raises(ConfigError, match="target > 0"):
        AnytimeBudget(target=target)


def test_wrong_settings_are_refused() -> None:
    for budget, alpha in ((AnytimeBudget(), 0.4), (AnytimeBudget(n=3), 0.001)):
        with pytest.raises(ConfigError):
            budget.check(CertifyParams(sigma=1.0, alpha=alpha))
