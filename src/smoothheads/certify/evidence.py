"""Evidence that may be looked at after every sample: the bound of the anytime budget."""

from __future__ import annotations

import math

from smoothheads.lazy import optimize, special


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
