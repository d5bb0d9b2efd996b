"""Binomial confidence bounds, rounded outward, and what n samples can certify at most.

A bound that is returned is never tighter than the exact one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

from scipy import special

from smoothheads.errors import ConfigError
from smoothheads.noise.laws import l2_radius

_SLACK = 4e-15  # above the relative error of betaincinv; every result is verified as well


def clopper_pearson_lower(k: int, n: int, alpha: float) -> float:
    """Returns p_lower with P(Bin(n, p_lower) >= k) <= alpha (Clopper and Pearson 1934).

    It is at most the true probability with probability at least 1 - alpha.

    Args:
        k: Votes for the class.
        n: Samples in all.
        alpha: Probability that the bound is wrong, one-sided.
    """
    if not (n >= 1 and 0 <= k <= n):
        raise ConfigError(f"A bound needs 0 <= k <= n and n >= 1, but k is {k} and n is {n}.")
    if not 0 < alpha < 0.5:
        raise ConfigError(f"alpha is {alpha:g}; choose it between 0 and 0.5, for example 0.001.")
    if k == 0:
        return 0.0
    # P(Bin(n, p) >= k) is the incomplete beta function I_p(k, n - k + 1), whose inverse is the bound; for
    # k = n it is p^n = alpha.
    p_lower = math.exp(math.log(alpha) / n) if k == n else float(special.betaincinv(k, n - k + 1, alpha))
    # The inverse is rounded, so step down until the defining inequality holds with room to spare.
    slack = _SLACK
    p_lower *= 1 - slack
    while float(special.betainc(k, n - k + 1, p_lower)) > alpha:
        slack *= 2
        p_lower *= 1 - slack
    return p_lower


def clopper_pearson_upper(k: int, n: int, alpha: float) -> float:
    """Returns p_upper with P(Bin(n, p_upper) <= k) <= alpha: the mirror image of the lower bound."""
    # The n - k votes for other classes have probability 1 - p.
    lower = clopper_pearson_lower(n - k, n, alpha)
    return 1.0 if lower == 0.0 else math.nextafter(1.0 - lower, 2.0)


def log_evidence(p0: float, k: int, n: int) -> float:
    """Returns the logarithm of the evidence for p > p0 after k votes of n samples.

    The evidence is the likelihood ratio to p0, averaged over a Beta(1/2, 1/2) prior cut to (p0, 1]. It is a
    supermartingale for every p <= p0, so by Ville's inequality the probability that it ever exceeds 1/alpha
    is at most alpha.

    Args:
        p0: The probability that is to be exceeded.
        k: Votes for the class.
        n: Samples in all.
    """
    # The posterior of the prior Beta(1/2, 1/2) is Beta(a, b); both are cut to (p0, 1].
    a, b = k + 0.5, n - k + 0.5
    above, prior_above = float(special.betaincc(a, b, p0)), float(special.betaincc(0.5, 0.5, p0))
    if above == 0.0:
        return -math.inf
    # log of the integral of p^k (1 - p)^(n - k) over the prior above p0, divided by the prior's mass there
    average = float(special.betaln(a, b) - special.betaln(0.5, 0.5)) + math.log(above / prior_above)
    # Divided by the likelihood at p0.
    return average - k * math.log(p0) - (n - k) * math.log1p(-p0)


def p_lower_anytime(k: int, n: int, alpha: float) -> float:
    """Returns the largest p0 in [1/2, 1) that the evidence rejects, rounded down; 0 if it rejects none.

    All these bounds hold at once, for every n, with probability at least 1 - alpha.

    Args:
        k: Votes for the class.
        n: Samples in all.
        alpha: Probability that any of the bounds is wrong.
    """
    from scipy import optimize

    # The rounding error of the logarithms is far below this addition.
    threshold = -math.log(alpha) + 1e-6 + 1e-14 * n

    def surplus(p0: float) -> float:
        return log_evidence(p0, k, n) - threshold

    # Without a majority, or without evidence for p > 1/2, nothing is certified.
    if k <= n / 2 or surplus(0.5) < 0:
        return 0.0
    # Where the evidence is at least 1/alpha >= 1/0.3 it falls in p0: there k - n p0 >= 1/2, and the slope of
    # its logarithm is at most prior(p0) / prior((p0, 1]) - (k - n p0) / (p0 (1 - p0)) < 0. So the rejected
    # values are an interval from below, and its end is where the evidence crosses 1/alpha.
    p_lower = float(optimize.brentq(surplus, 0.5, k / n if k < n else 1.0 - 1e-16, xtol=1e-13))
    # The root is approximate: step back until the evidence suffices.
    step = 1e-13
    while surplus(p_lower) < 0:
        p_lower, step = p_lower - step, 2 * step
    return p_lower


def max_radius(
    n: int, alpha: float, sigma: float, radius_of: Callable[[float, float], float] = l2_radius
) -> float:
    """Returns the largest radius that n samples can certify: every one of them votes for the class.

    Args:
        n: Samples that bound the probability.
        alpha: Probability that the certificate is wrong.
        sigma: Standard deviation of the noise.
        radius_of: The noise law's own map from (p_lower, sigma) to a radius.
    """
    return radius_of(clopper_pearson_lower(n, n, alpha), sigma)


def minimum_n(alpha: float) -> int:
    """Returns the fewest samples that can certify any radius: with them unanimous votes show p > 1/2."""
    return next(n for n in itertools.count(1) if clopper_pearson_lower(n, n, alpha) > 0.5)


def squared_grid_budget(radius: float, q: int) -> int:
    """Returns the largest squared integer distance that is still inside the ball.

    Grid images m, m' in {0..q} are closer than `radius` if and only if sum (m' - m)^2 is at most this.
    """
    # The largest whole number below (q R)^2, in exact rational arithmetic.
    return math.ceil((q * Fraction(radius)) ** 2) - 1
