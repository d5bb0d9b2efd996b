"""Differences between arms, paired over images, noise and seeds, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smoothheads.results.metrics import Interval, bootstrap
from smoothheads.studies.results import Stack, StudyResults

Floats = NDArray[np.float64]
Verdict = Literal["confirmed", "contradicted", "undecided"]


@dataclass(frozen=True, slots=True)
class Gain:
    """The mean of a difference over images and seeds."""

    value: float
    images: Interval
    """95 % interval for other images and these trained networks (bootstrap over images)."""
    seeds: Interval | None
    """95 % interval for other images and other seeds; None with one seed."""
    per_seed: tuple[float, ...]

    @property
    def interval(self) -> Interval:
        """The interval that a claim about training is judged by."""
        return self.images if self.seeds is None else self.seeds

    @property
    def verdict(self) -> Verdict:
        """The answer to the question whether the difference is above 0."""
        low, high = self.interval
        return "confirmed" if low > 0 else "contradicted" if high < 0 else "undecided"


def gain(difference: Floats) -> Gain:
    """Returns the mean of differences [seeds, images] between two arms, with its intervals."""
    # The bootstrap draws images, each with all of its seeds: these networks on other images.
    over_images = bootstrap(difference.mean(0)[:, None], np.random.default_rng(0))[0]
    return Gain(
        value=float(difference.mean()),
        images=over_images,
        seeds=crossed_interval(difference) if len(difference) > 1 else None,
        per_seed=tuple(difference.mean(1).tolist()),
    )


def crossed_interval(values: Floats, level: float = 0.95) -> Interval:
    """Returns an interval of the grand mean of [seeds, images] when both are random samples.

    Seeds and images are crossed random effects. Unlike a bootstrap over two or three seeds, which never sees
    a seed beyond them, this interval stays wide when seeds are few.
    """
    seeds, images = values.shape
    # Split the values into grand mean, effects of seeds and images, and residuals (two-way, no replication).
    grand, by_seed, by_image = values.mean(), values.mean(1), values.mean(0)
    residuals = values - by_seed[:, None] - by_image[None, :] + grand
    # Mean squares with their degrees of freedom.
    freedoms = (seeds - 1, max(1, images - 1), max(1, (seeds - 1) * (images - 1)))
    ms_seeds = images * float(np.square(by_seed - grand).sum()) / freedoms[0]
    ms_images = seeds * float(np.square(by_image - grand).sum()) / freedoms[1]
    ms_residuals = float(np.square(residuals).sum()) / freedoms[2]
    # Variance of the grand mean: (MS_seeds + MS_images - MS_residuals) / count. Where residuals outweigh an
    # effect the sum is too small; the largest part alone is then the better estimate.
    total = max(ms_seeds + ms_images - ms_residuals, ms_seeds, ms_images)
    if total == 0:
        return Interval(float(grand), float(grand))
    # Satterthwaite's degrees of freedom of a sum of mean squares.
    parts = zip((ms_seeds, ms_images, ms_residuals), freedoms, strict=True)
    freedom = total**2 / sum(square**2 / count for square, count in parts)
    from scipy import stats

    half = float(stats.t.ppf((1 + level) / 2, max(1.0, freedom))) * math.sqrt(total / values.size)
    return Interval(float(grand) - half, float(grand) + half)


def paired_gain(this: Stack, baseline: Stack, column: str = "certified_radius") -> Gain | None:
    """Compares two arms over the seeds that both have on the same images; None if there is no such seed."""
    found = paired_differences(this, baseline, column)
    if not found:
        return None
    return gain(np.stack(list(found.values())))


def paired_differences(this: Stack, baseline: Stack, column: str = "certified_radius") -> dict[int, Floats]:
    """Returns the differences image by image, for every seed for which the two arms are a pair.

    Rows are a pair if they have the same images and were certified with the same alpha. Somebody else's log
    is no pair with our own row: it has other noise, and other networks.
    """
    found = {}
    for seed in sorted(this.by_seed.keys() & baseline.by_seed.keys()):
        one, other = this.by_seed[seed], baseline.by_seed[seed]
        a, b = one.log, other.log
        same_images = np.array_equal(a.index, b.index) and np.array_equal(a.label, b.label)
        same_origin = (one.facts.imported is None) == (other.facts.imported is None)
        same_alpha = a.alpha is None or b.alpha is None or a.alpha == b.alpha
        if same_images and same_origin and same_alpha:
            found[seed] = np.asarray(a[column], float) - np.asarray(b[column], float)
    return found


def gains(study: StudyResults) -> Iterator[tuple[str, float, str, str, Gain]]:
    """Yields setting, sigma, arm, baseline and gain in ACR, wherever both arms have a seed in common."""
    for setting, sigma in study.groups():
        for this, baseline in study.differences:
            found = paired_gain(study.arm(setting, sigma, this), study.arm(setting, sigma, baseline))
            if found is not None:
                yield setting, sigma, this, baseline, found
