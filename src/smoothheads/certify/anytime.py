"""A certificate that may be read at any moment and only grows: no sample size need be chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from scipy import optimize, special

from smoothheads.certify.algorithm import Sampler, draw, require_samples, top_class
from smoothheads.certify.theorem import GAUSSIAN, Theorem
from smoothheads.errors import ConfigError
from smoothheads.types import ABSTAIN, Certificate, Phase

_MOST_ALPHA = 0.3  # below it the evidence falls in p0 wherever it suffices (see p_lower_anytime)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anytime:
    """With probability at least 1 - alpha every certificate of the stream is right, at once."""

    n0: int = 100
    alpha: float = 0.001
    step: int = 100
    """Samples between two certificates."""
    n_max: int = 100_000
    target: float = math.inf
    """Stop when this radius is certified."""

    def __post_init__(self) -> None:
        require_samples(self.n0, self.n_max, self.alpha)
        if not (self.alpha <= _MOST_ALPHA and self.step >= 1):
            raise ConfigError(f"alpha <= {_MOST_ALPHA}, step >= 1", repr(self), "0.001 and 100 are usual")

    def certify(
        self, sample: Sampler, *, sigma: float, correction: float = 0.0, theorem: Theorem = GAUSSIAN
    ) -> Certificate:
        *_, last = self.stream(sample, sigma=sigma, correction=correction, theorem=theorem)
        return last

    def stream(
        self, sample: Sampler, *, sigma: float, correction: float = 0.0, theorem: Theorem = GAUSSIAN
    ) -> Iterator[Certificate]:
        """Running certificates; whoever listens may stop at any of them for any reason."""
        require_samples(self.n0, self.n_max, self.alpha, correction)
        candidate = top_class(draw(sample, Phase.SELECTION, self.n0))
        k = n = 0
        p_lower = radius = 0.0
        while n < self.n_max and radius < self.target:
            count = min(self.step, self.n_max - n)
            k, n = k + int(draw(sample, Phase.ESTIMATION, count)[candidate]), n + count
            p_lower = max(p_lower, p_lower_anytime(k, n, self.alpha) - correction)
            radius = theorem.radius(p_lower, sigma)
            yield Certificate(candidate if radius > 0 else ABSTAIN, radius, p_lower, k, n, self.n0)


def log_evidence(p0: float, k: int, n: int) -> float:
    """Logarithm of the evidence for p > p0: the likelihood ratio to p0, averaged over a Beta(1/2, 1/2) prior
    cut to (p0, 1]. It is a supermartingale for every p <= p0, so the probability that it ever exceeds 1/alpha
    is at most alpha."""
    a, b = k + 0.5, n - k + 0.5
    above, prior_above = float(special.betaincc(a, b, p0)), float(special.betaincc(0.5, 0.5, p0))
    if above == 0.0:
        return -math.inf
    average = float(special.betaln(a, b) - special.betaln(0.5, 0.5)) + math.log(above / prior_above)
    return average - k * math.log(p0) - (n - k) * math.log1p(-p0)


def p_lower_anytime(k: int, n: int, alpha: float) -> float:
    """The largest p0 in [1/2, 1) that the evidence rejects, rounded down; 0 if it rejects none.

    Where the evidence is at least 1/alpha >= 1/0.3 it falls in p0: there k - n p0 >= 1/2, and the slope of
    its logarithm is at most prior(p0) / prior((p0, 1]) - (k - n p0) / (p0 (1 - p0)) < 0. So what is rejected
    is an interval from below, and its end is where the evidence crosses 1/alpha.
    """
    wanted = -math.log(alpha) + 1e-6 + 1e-14 * n  # far above the rounding error of the logarithms

    def surplus(p0: float) -> float:
        return log_evidence(p0, k, n) - wanted

    if k <= n / 2 or surplus(0.5) < 0:
        return 0.0
    p_lower, back = float(optimize.brentq(surplus, 0.5, k / n if k < n else 1.0 - 1e-16, xtol=1e-13)), 1e-13
    while surplus(p_lower) < 0:
        p_lower, back = p_lower - back, 2 * back
    return p_lower
