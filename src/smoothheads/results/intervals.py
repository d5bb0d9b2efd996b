"""How sure a number over images is: standard errors, intervals, exact tests. Pure functions.

Two uncertainties are kept apart: which images happened to be in the test set (standard error, bootstrap,
binomial interval), and the failure probability alpha of each certificate (the last function).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.algorithm import two_sided_p_value
from smoothheads.errors import ConfigError
from smoothheads.lazy import special, stats

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Estimate(NamedTuple):
    """A mean over images."""

    value: float
    standard_error: float


class Interval(NamedTuple):
    low: float
    high: float


class MedianInterval(NamedTuple):
    """A median over rounds and, with 95 % confidence, where that of further rounds would lie."""

    median: float
    low: float
    high: float


def interval_of_median(values: Floats, level: float = 0.95) -> MedianInterval:
    """Between the two order statistics that enclose the distribution's median with this confidence; all there
    is when the values are too few for it (below 6 for 95 %)."""
    ordered, count = np.sort(values), len(values)
    below = max(int(stats.binom.ppf((1 - level) / 2, count, 0.5)), 1)
    return MedianInterval(float(np.median(ordered)), float(ordered[below - 1]), float(ordered[count - below]))


def mean(values: Floats | Bools) -> Estimate:
    """The standard error is that of the images as a random sample; nan for a single image."""
    count = len(values)
    spread = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    return Estimate(float(np.mean(values)), spread)


def bootstrap(
    values: Floats, generator: np.random.Generator, *, resamples: int = 2000, level: float = 0.95
) -> list[Interval]:
    """Percentile interval of the mean of each column of [images, columns], images drawn with replacement.

    All columns share the draws, so that intervals of one log fit together.
    """
    count = len(values)
    means = np.empty((resamples, values.shape[1]))
    for i in range(resamples):
        weights = np.bincount(generator.integers(count, size=count), minlength=count)
        means[i] = weights @ values / count
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def binomial_band(shares: Floats, count: int, *, level: float = 0.95) -> tuple[Floats, Floats]:
    """Exact (Clopper-Pearson) two-sided interval, low and high, of each share of `count` images."""
    hits, tail = np.round(shares * count), (1 - level) / 2
    low = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), count - hits + 1, tail), 0.0)
    misses = np.maximum(count - hits, 1)
    high = np.where(hits < count, special.betaincinv(hits + 1, misses, 1 - tail), 1.0)
    return low, high


def paired_test(first: Bools, second: Bools) -> float:
    """Exact McNemar test: two-sided p-value of as unequal a split of the images where only one succeeds."""
    only_first = int(np.sum(first & ~second))
    only_second = int(np.sum(second & ~first))
    return two_sided_p_value(max(only_first, only_second), min(only_first, only_second))


def false_certificates(images: int, alpha: float, rho: float = 0.001) -> int:
    """With probability at least 1 - rho no more than this many of the certificates are wrong."""
    if images < 1 or not (0 < alpha < 1 and 0 < rho < 1):
        raise ConfigError(
            "images >= 1 and alpha, rho strictly between 0 and 1",
            f"images {images}, alpha {alpha}, rho {rho}",
            "pass the settings of the run",
        )
    return next(wrong for wrong in range(images + 1) if special.bdtrc(wrong, images, alpha) <= rho)
