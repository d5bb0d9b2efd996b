"""What one log says: every number that a table prints, with its standard error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.radius import max_radius
from smoothheads.results import metrics
from smoothheads.results.intervals import Estimate, mean
from smoothheads.results.results import Results

_WRITTEN = 2e-6  # what our six decimals and the correction of the noise take off a radius


@dataclass(frozen=True, slots=True)
class Summary:
    """None stands where the log does not tell (sigma, alpha, n, votes)."""

    name: str
    images: int
    sigma: float | None
    alpha: float | None
    n: int | None
    budget: str
    acr: Estimate
    radii: tuple[float, ...]
    certified: tuple[Estimate, ...]
    """Certified accuracy at each of `radii`."""
    accuracy: float
    """Right and not abstained: certified accuracy at radius 0."""
    classes: tuple[int, int]
    """Of how many classes any image is certified right, of those that the images have."""
    abstained: Estimate
    noisy_accuracy: Estimate | None
    """Share of samples that the base classifier gets right."""
    hard_accuracy: Estimate | None
    """The same on the hardest half of the images: of this log's, or of all that are compared."""
    ceiling: float | None
    """The largest radius that n, alpha and sigma allow."""
    at_ceiling: float | None
    """Share of the images whose radius is bounded by the samples, not by the network."""
    samples: Estimate | None
    """Per image, those of the selection included."""
    seconds: Estimate
    """Per image."""


def summarize(
    log: Results, radii: Sequence[float] | None = None, hard: NDArray[np.intp] | None = None
) -> Summary:
    """`hard` are the positions of the hardest half, where logs are compared on the same one."""
    chosen = metrics.default_radii(float(log.radius.max())) if radii is None else tuple(radii)
    reached = metrics.certified(log.correct, log.radius, chosen)
    certified = tuple(mean(reached[:, i]) for i in range(len(chosen)))
    noisy = log.label_probability() if log.has_votes else None
    if noisy is not None and hard is None:
        hard = metrics.hardest_half(noisy)
    ceiling, at_ceiling = ceiling_of(log), None
    if ceiling is not None:
        room = _WRITTEN if log.rows else None
        at_ceiling = float(metrics.at_ceiling(log.radius, ceiling, room).mean())
    return Summary(
        name=log.name,
        images=len(log),
        sigma=log.sigma,
        alpha=log.alpha,
        n=log.n,
        budget=log.budget,
        acr=mean(metrics.certified_radii(log.correct, log.radius)),
        radii=chosen,
        certified=certified,
        accuracy=float(log.correct.mean()),
        classes=metrics.classes_certified(log.label, log.correct),
        abstained=mean(log.abstained),
        noisy_accuracy=None if noisy is None else mean(noisy),
        hard_accuracy=None if noisy is None else mean(noisy[hard]),
        ceiling=ceiling,
        at_ceiling=at_ceiling,
        samples=None if log.samples is None else mean(log.samples.astype(np.float64)),
        seconds=mean(log.seconds),
    )


def ceiling_of(log: Results) -> float | None:
    if log.n is None or log.alpha is None or log.sigma is None or log.norm != log.law.norm:
        return None
    return max_radius(log.n, log.alpha, log.sigma, log.law.radius)
