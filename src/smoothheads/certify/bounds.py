"""Binomial confidence bounds, rounded outward: what is returned is never tighter than the exact bound."""

from __future__ import annotations

import math

import numpy as np

from smoothheads.errors import ConfigError, one_of
from smoothheads.lazy import optimize, special
from smoothheads.types import Counts

_SLACK = 4e-15  # above the relative error of betaincinv; every result is verified as well


def clopper_pearson_lower(k: int, n: int, alpha: float) -> float:
    """p with P(Bin(n, p) >= k) <= alpha: one-sided, holds with probability at least 1 - alpha."""
    return randomized_lower(k, n, alpha, 1.0)


def clopper_pearson_upper(k: int, n: int, alpha: float) -> float:
    """p with P(Bin(n, p) <= k) <= alpha: one-sided, holds with probability at least 1 - alpha."""
    lower = clopper_pearson_lower(n - k, n, alpha)
    return 1.0 if lower == 0.0 else math.nextafter(1.0 - lower, 2.0)


def randomized_lower(k: int, n: int, alpha: float, w: float) -> float:
    """Stevens' bound: p with P(Bin > k) + w P(Bin = k) <= alpha, for a w drawn uniformly before sampling.

    w = 1 is Clopper-Pearson. With probability alpha an all-hits count gives 1, an infinite radius; cap it at
    the Clopper-Pearson bound wherever radii are averaged.
    """
    _check(k, n, alpha)
    if not 0 <= w <= 1:
        raise ConfigError("0 <= w <= 1", f"{w:g}", "draw w uniformly, once per image")
    if k == n:
        return 1.0 if w <= alpha else _verified(math.exp(math.log(alpha / w) / n), k, n, alpha, w)
    if k == 0 and w >= alpha:  # at p = 0 the left side is already w
        return 0.0
    return _verified(_solve(k, n, alpha, w), k, n, alpha, w)


def class_bounds(
    bound: str, votes: Counts, candidate: int, alpha: float, w: float = 1.0
) -> tuple[float, float | None]:
    """From below for the candidate's probability and, with `pair`, from above for every other class; both
    hold at once with probability at least 1 - alpha.

    randomized: capped at the Clopper-Pearson bound of all hits, so that radii can be averaged. pair: half of
    alpha each; the true runner-up has at most as many votes as the most voted other class, so an upper bound
    from that count covers it and no correction for the number of classes is needed.
    """
    k, n = int(votes[candidate]), int(votes.sum())
    match bound:
        case "clopper-pearson":
            return clopper_pearson_lower(k, n, alpha), None
        case "randomized":
            return min(randomized_lower(k, n, alpha, w), clopper_pearson_lower(n, n, alpha)), None
        case "pair":
            runner_up = int(np.delete(votes, candidate).max(initial=0))
            return clopper_pearson_lower(k, n, alpha / 2), clopper_pearson_upper(runner_up, n, alpha / 2)
    raise one_of("bound", bound, ("clopper-pearson", "randomized", "pair"))


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


def _solve(k: int, n: int, alpha: float, w: float) -> float:
    low = float(special.betaincinv(k, n - k + 1, alpha)) if k else 0.0
    if w == 1.0:
        return low
    high = float(special.betaincinv(k + 1, n - k, alpha))
    while high - low > _SLACK * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _tail(middle, k, n, w) <= alpha else (low, middle)
    return low


def _verified(p: float, k: int, n: int, alpha: float, w: float) -> float:
    """Steps down until the defining inequality holds in floating point with room to spare."""
    slack = _SLACK
    p *= 1 - slack
    while _tail(p, k, n, w) > alpha:
        slack *= 2
        p *= 1 - slack
    return p


def _tail(p: float, k: int, n: int, w: float) -> float:
    """P(Bin(n, p) > k) + w P(Bin(n, p) = k)."""
    at_least = float(special.betainc(k, n - k + 1, p)) if k else 1.0
    above = float(special.betainc(k + 1, n - k, p)) if k < n else 0.0
    return at_least if w == 1.0 else (1 - w) * above + w * at_least


def _check(k: int, n: int, alpha: float) -> None:
    if not (n >= 1 and 0 <= k <= n):
        raise ConfigError("0 <= k <= n with n >= 1", f"k = {k}, n = {n}", "pass votes of the same samples")
    if not 0 < alpha < 0.5:
        raise ConfigError("0 < alpha < 0.5", f"{alpha:g}", "0.001 is usual")
