"""Differences paired over images, noise and seeds, and how sure they are: functions of [seeds, images]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smoothheads.lazy import stats
from smoothheads.results.metrics import Interval, bootstrap

Floats = NDArray[np.float64]
Verdict = Literal["confirmed", "contradicted", "undecided"]


@dataclass(frozen=True, slots=True)
class Gain:
    """The mean of a difference over images and seeds."""

    value: float
    images: Interval
    """95 %, for other images and these trained networks: bootstrap over images."""
    seeds: Interval | None
    """95 %, for other images and other seeds; none with one seed."""
    per_seed: tuple[float, ...]

    @property
    def interval(self) -> Interval:
        """The one that a claim about training is judged by."""
        return self.images if self.seeds is None else self.seeds

    @property
    def verdict(self) -> Verdict:
        """Of the claim that the difference is above 0."""
        low, high = self.interval
        return "confirmed" if low > 0 else "contradicted" if high < 0 else "undecided"


def gain(this: Floats, baseline: Floats, *, resamples: int = 2000) -> Gain:
    """Of two arms on the same images and seeds, [seeds, images] each."""
    difference = this - baseline
    over_images = bootstrap(difference.mean(0)[:, None], np.random.default_rng(0), resamples=resamples)[0]
    return Gain(
        value=float(difference.mean()),
        images=over_images,
        seeds=crossed_interval(difference) if len(difference) > 1 else None,
        per_seed=tuple(difference.mean(1).tolist()),
    )


def crossed_interval(values: Floats, level: float = 0.95) -> Interval:
    """Interval of the grand mean of [seeds, images] when both are random samples.

    Seeds and images are crossed random effects; the variance of the mean is (MS of seeds + MS of images - MS
    of the rest) / count, with Satterthwaite's degrees of freedom. Unlike a bootstrap over two or three seeds,
    which never sees a seed beyond them, this stays wide when seeds are few.
    """
    seeds, images = values.shape
    mean, by_seed, by_image = values.mean(), values.mean(1), values.mean(0)
    rest = values - by_seed[:, None] - by_image[None, :] + mean
    freedoms = (seeds - 1, max(1, images - 1), max(1, (seeds - 1) * (images - 1)))
    of_seeds = images * float(np.square(by_seed - mean).sum()) / freedoms[0]
    of_images = seeds * float(np.square(by_image - mean).sum()) / freedoms[1]
    of_rest = float(np.square(rest).sum()) / freedoms[2]
    # Where the rest outweighs an effect the sum is too small; the largest part alone is then the better one.
    total = max(of_seeds + of_images - of_rest, of_seeds, of_images)
    if total == 0:
        return Interval(float(mean), float(mean))
    parts = zip((of_seeds, of_images, of_rest), freedoms, strict=True)
    freedom = total**2 / sum(square**2 / count for square, count in parts)
    half = float(stats.t.ppf((1 + level) / 2, max(1.0, freedom))) * math.sqrt(total / values.size)
    return Interval(float(mean) - half, float(mean) + half)
