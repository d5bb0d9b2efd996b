"""The field's metrics, as everybody computes them. Pure functions on arrays with one entry per image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_THREE_DIGITS = 0.006  # relative error of a radius that a foreign log rounded to three digits, and some room


def certified(correct: Bools, radius: Floats, radii: Sequence[float]) -> Bools:
    """[images, radii]: right, and certified at least that far (not strict, as in every code base)."""
    return np.asarray(correct[:, None] & (radius[:, None] >= np.asarray(radii)[None, :]))


def certified_accuracy(correct: Bools, radius: Floats, radii: Sequence[float]) -> Floats:
    """CA(r) for each r; abstentions and wrong answers count as 0 at every radius."""
    return np.asarray(certified(correct, radius, radii).mean(axis=0))


def certified_radii(correct: Bools, radius: Floats) -> Floats:
    """Radius where right, 0 elsewhere; its mean over all images is the average certified radius (ACR)."""
    return np.where(correct, radius, 0.0)


def average_certified_radius(correct: Bools, radius: Floats) -> float:
    return float(certified_radii(correct, radius).mean())


def classes_certified(label: Ints, correct: Bools) -> tuple[int, int]:
    """Of how many classes any image is right, and how many classes the images have. A network that gives up
    some classes for the others can have the larger ACR."""
    return len(np.unique(label[correct])), len(np.unique(label))


def hardest_half(probability: Floats) -> NDArray[np.intp]:
    """Positions of the half of the images (rounded up) with the smallest probability of the true label."""
    return np.argsort(probability, kind="stable")[: (len(probability) + 1) // 2]


def at_ceiling(radius: Floats, ceiling: float, room: float | None = None) -> Bools:
    """Images whose radius is the largest that n and alpha allow: every vote was for one class.

    `room` is how far below it a radius may have been written; without it three digits. Under Gaussian noise
    that is enough to tell, for the next smaller radius is more than one per cent below.
    """
    return np.asarray(radius >= ceiling - (_THREE_DIGITS * ceiling if room is None else room))


def default_radii(top: float, step: float = 0.25, most: int = 10) -> tuple[float, ...]:
    """0, 0.25, ... up to `top`, at most ten: the columns of the field's tables."""
    count = min(int(top / step + 1e-9) + 1, most)
    return tuple(round(i * step, 10) for i in range(count))
