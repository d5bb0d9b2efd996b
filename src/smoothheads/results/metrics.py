"""The field's metrics, and how sure they are. Pure functions on arrays with one entry per image.

Two uncertainties are kept apart: which images happened to be in the test set (standard error, bootstrap,
binomial interval), and the failure probability alpha of each certificate (`false_certificates`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothheads.certify.algorithm import two_sided_p_value

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# A foreign log writes radii with three digits: half a unit of the last one is at most 0.5 %, with some room.
_THREE_DIGITS = 0.006
_TAIL = (1 - 0.95) / 2  # on each side of an interval of 95 % confidence


class ImageDifferences(NamedTuple):
    """Tells how the images of a log differ from those that it should have; sorted indices."""

    doubled: list[int]
    missing: list[int]
    other: list[int]


def image_differences(indices: Sequence[int], expected: Collection[int]) -> ImageDifferences:
    """Returns which images are there more than once, which are missing, and which are not expected."""
    counts = Counter(indices)
    doubled = sorted(index for index, count in counts.items() if count > 1)
    wanted = set(expected)
    return ImageDifferences(doubled, sorted(wanted - counts.keys()), sorted(counts.keys() - wanted))


def hardest_half(probability: Floats) -> NDArray[np.intp]:
    """Returns the positions of the half of the images (rounded up) with the least probable true label."""
    return np.argsort(probability, kind="stable")[: (len(probability) + 1) // 2]


def at_ceiling(radius: Floats, ceiling: float, room: float | None = None) -> Bools:
    """Returns which images have the largest radius that n and alpha allow: every vote was for one class.

    `room` is how far below it a radius may have been written, by default as far as three digits round it.
    Under Gaussian noise that is enough, for the next smaller radius is more than one per cent below.
    """
    return np.asarray(radius >= ceiling - (_THREE_DIGITS * ceiling if room is None else room))


def default_radii(top: float) -> tuple[float, ...]:
    """Returns 0, 0.25, ... up to `top`, at most ten: the columns of the field's tables."""
    return tuple(0.25 * i for i in range(min(int(top / 0.25 + 1e-9) + 1, 10)))


class Estimate(NamedTuple):
    """A mean over images."""

    value: float
    standard_error: float


class Interval(NamedTuple):
    low: float
    high: float


class MedianInterval(NamedTuple):
    """A median over rounds and, with 95 % confidence, the range of the distribution's median."""

    median: float
    low: float
    high: float


def mean(values: Floats | Bools) -> Estimate:
    """Returns the mean with the standard error of a random sample; the error is nan for a single image."""
    count = len(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    return Estimate(float(np.mean(values)), error)


def interval_of_median(values: Floats) -> MedianInterval:
    """Returns the median between the two order statistics that enclose the true one with 95 % confidence.

    If the values are too few for it (below 6), the interval is all of their range.
    """
    ordered, count = np.sort(values), len(values)
    # The number of values below the true median is binomial (count, 1/2): find its lower quantile.
    cumulated = special.bdtr(np.arange(count + 1), count, 0.5)
    below = max(int(np.searchsorted(cumulated, _TAIL)), 1)
    return MedianInterval(float(np.median(ordered)), float(ordered[below - 1]), float(ordered[count - below]))


def bootstrap(values: Floats, generator: np.random.Generator, *, resamples: int = 2000) -> list[Interval]:
    """Returns 95 % intervals of the column means of [images, columns], images drawn with replacement.

    All columns share the draws, so that the intervals of one log fit together.
    """
    count = len(values)
    means = np.empty((resamples, values.shape[1]))
    # Drawing images with replacement is weighting each with how often it was drawn.
    for i in range(resamples):
        weights = np.bincount(generator.integers(count, size=count), minlength=count)
        means[i] = weights @ values / count
    return percentiles(means)


def percentiles(samples: Floats) -> list[Interval]:
    """Returns the interval that holds the middle 95 % of each column of bootstrap samples."""
    low, high = np.quantile(samples, [_TAIL, 1 - _TAIL], axis=0)
    return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def binomial_band(fractions: Floats, count: int) -> tuple[Floats, Floats]:
    """Returns low and high of the exact 95 % interval (Clopper-Pearson) of fractions of `count` images."""
    hits = np.round(fractions * count)
    # The ends are quantiles of beta distributions; 0 and 1 where no image or every image hits.
    low = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), count - hits + 1, _TAIL), 0.0)
    misses = np.maximum(count - hits, 1)
    high = np.where(hits < count, special.betaincinv(hits + 1, misses, 1 - _TAIL), 1.0)
    return low, high


def paired_test(first: Bools, second: Bools) -> float:
    """Returns the two-sided p-value of the exact McNemar test.

    The hypothesis is that the images where only one of the two succeeds split evenly.
    """
    # Images on which both succeed or both fail tell nothing.
    only_first = int(np.sum(first & ~second))
    only_second = int(np.sum(second & ~first))
    return two_sided_p_value(max(only_first, only_second), min(only_first, only_second))


def false_certificates(images: int, alpha: float) -> int:
    """Returns how many certificates at most are wrong, with probability at least 0.999."""
    # Wrong certificates are at most binomial (images, alpha): find the quantile 0.999.
    return next(wrong for wrong in range(images + 1) if special.bdtrc(wrong, images, alpha) <= 0.001)
