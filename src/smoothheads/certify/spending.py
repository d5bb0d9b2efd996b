"""Exact error spending: when a count of votes, looked at several times, shows that p exceeds p0.

Looks are numbers of samples fixed in advance; each may spend a part of alpha. For every p <= p0 the count is
stochastically smaller than at p0, so the probability of ever reaching a boundary is at most what was spent.
Stopping early for any other reason can only lower it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from smoothheads.certify.bounds import minimum_n
from smoothheads.errors import ConfigError

_LOST, _LOST_SHARE = 1e-18, 1e-13  # mass cut off each end of a step, and at most this share of what is spent
_KEPT_BACK = 1e-9  # of alpha, for what is cut off and for rounding
_GIVE_UP_LEVEL, _GIVE_UP_POWER = 0.01, 0.05


class SequentialTest(NamedTuple):
    """A test of p > p0 in looks; giving up never affects its error."""

    looks: tuple[int, ...]
    certify_at: tuple[int, ...]
    """At look i the claim is shown by this many votes."""
    give_up_at: tuple[int, ...]
    """At look i the claim is hopeless with this many votes or fewer; -1 for never."""


def look_schedule(n: int, first: int, ratio: float = 1.1) -> tuple[int, ...]:
    """Returns multiples of `first` that grow by about `ratio`, ending with n."""
    # Each look is a multiple of `first`, at least one more than the last one and about `ratio` times as far.
    looks, size = [], float(first)
    while (look := first * round(size / first)) < n:
        looks.append(look)
        size = max(size * ratio, look + first)
    return (*looks, n)


def spending_plan(alpha: float, looks: Sequence[int]) -> tuple[float, ...]:
    """Returns what each look spends: half of alpha evenly before the last look, half on the last."""
    # A little is kept back for the mass that is cut off, and for rounding.
    whole = alpha * (1 - _KEPT_BACK)
    if len(looks) == 1:
        return (whole,)
    interim = len(looks) - 1
    return (*[whole / 2 / interim] * interim, whole / 2)


def spend_boundaries(p0: float, looks: Sequence[int], spend: Sequence[float]) -> tuple[int, ...]:
    """Returns the votes at each look that show p > p0.

    They are the smallest whose crossing probability at p0 stays within the spending; a count above its look
    can never be reached. What a look does not use is carried to the next.

    Args:
        p0: The probability that must be exceeded.
        looks: Numbers of samples at which the votes are looked at.
        spend: The part of alpha that each look may spend.
    """
    from scipy import stats

    # Dynamic programming over the distribution of the count among paths that have not stopped.
    alive, offset, unspent, drawn = np.ones(1), 0, 0.0, 0
    lost = min(_LOST, _LOST_SHARE * sum(spend))
    counts: list[int] = []
    for look, share in zip(looks, spend, strict=True):
        step = look - drawn
        # Convolve with the binomial of the new samples; alive[i] is P(count = offset + i, not stopped).
        low, high = int(stats.binom.ppf(lost, step, p0)), step - int(stats.binom.ppf(lost, step, 1 - p0))
        alive = np.convolve(alive, stats.binom.pmf(np.arange(low, high + 1), step, p0))
        offset, drawn, unspent = offset + low, look, unspent + share
        # The boundary is the smallest count whose tail probability fits into what may be spent.
        tail = np.append(np.cumsum(alive[::-1])[::-1], 0.0)
        boundary = int(np.argmax(tail <= unspent))
        unspent -= float(tail[boundary])
        counts.append(offset + boundary)
        # Only paths below the boundary go on.
        alive = alive[:boundary] if boundary else np.zeros(1)
    return tuple(counts)


@lru_cache(maxsize=256)
def sequential_test(p0: float, n: int, first: int, alpha: float) -> SequentialTest:
    """Returns a test of p > p0 with error at most alpha.

    Args:
        p0: The probability that must be exceeded.
        n: Samples at most.
        first: Samples at the first look.
        alpha: Probability that the test shows p > p0 although it is not so.
    """
    if not (n >= minimum_n(alpha) and 1 <= first <= n):
        least = minimum_n(alpha)
        raise ConfigError(
            f"A sequential test needs n >= {least} and its first look between 1 and n, but n is {n} and the "
            f"first look {first}: raise n."
        )
    looks = look_schedule(n, first)
    # No votes show p > 1.
    if not 0 < p0 < 1:
        return SequentialTest(looks, tuple(look + 1 for look in looks), looks)
    counts = spend_boundaries(p0, looks, spending_plan(alpha, looks))
    # A count that suffices for a later look suffices now: it can only grow.
    certify_at = tuple(np.minimum.accumulate(counts[::-1])[::-1].tolist())
    return SequentialTest(looks, certify_at, _give_up(p0, looks, counts[-1]))


def _give_up(p0: float, looks: tuple[int, ...], goal: int) -> tuple[int, ...]:
    """Returns the votes at which a test is hopeless.

    The mirrored test shows p < p0, or the goal at the last look is out of likely reach.
    """
    from scipy import stats

    # The goal is out of reach whatever the votes.
    if goal > looks[-1]:
        return looks
    # The mirrored test counts the votes for other classes: so many of them show that p < p0.
    misses = spend_boundaries(1 - p0, looks, spending_plan(_GIVE_UP_LEVEL, looks))
    # Even if p is just what the goal needs, the samples that are left bring no more than `likely` votes.
    left = looks[-1] - np.array(looks)
    likely = stats.binom.isf(_GIVE_UP_POWER, left, goal / looks[-1])
    unlikely = goal - 1 - np.where(left > 0, likely, 0)
    give_up = np.maximum(np.array(looks) - np.array(misses), unlikely)
    return tuple(int(count) for count in np.maximum(give_up, -1))
