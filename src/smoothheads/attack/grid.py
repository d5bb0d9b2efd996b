"""From a real direction to a grid image inside a squared budget; distances are exact integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise.base import check_image
from smoothheads.types import Grid, Pixels

Real = NDArray[np.floating[Any]]
_Whole = NDArray[np.int64]

_FARTHEST = 2.0**40  # beyond this scale a direction's largest pixel has long met the border
_BISECTIONS = 60


def squared_distance(a: Pixels, b: Pixels) -> int:
    """sum (a - b)^2 of grid integers: what `squared_grid_budget` bounds."""
    return int(np.square(a.astype(np.int64) - b.astype(np.int64)).sum())


def move(image: Pixels, direction: Real, budget: int, grid: Grid) -> Pixels:
    """The image moved along `direction`, whose length is of no account, as far as `budget` allows.

    sum (m' - m)^2 <= budget exactly, every pixel stays in 0..q and none moves against the direction; nor
    could any take one more step along it.
    """
    check_image(image, grid)
    _check(image, direction, budget)
    longest = float(np.abs(direction).max())
    if longest == 0:
        return image.copy()
    weight = np.abs(direction.astype(np.float64)) / longest
    here = image.astype(np.int64)
    room = np.where(direction > 0, grid.max_value - here, np.where(direction < 0, here, 0))
    steps = _fill(_scale(weight, room, budget), weight, room, budget)
    return (here + np.where(direction > 0, steps, -steps)).astype(np.uint8)


def _scale(weight: Real, room: _Whole, budget: int) -> _Whole:
    """The longest rounded multiple of the direction that fits: of all steps with a squared length of at most
    its own, those that go farthest along the direction."""

    def at(scale: float) -> _Whole:
        steps: _Whole = np.minimum(np.rint(scale * weight), room).astype(np.int64)
        return steps

    def fits(scale: float) -> bool:
        return int(np.square(at(scale)).sum()) <= budget

    low, high = 0.0, 1.0
    while fits(high) and high < _FARTHEST:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return at(low)


def _fill(steps: _Whole, weight: Real, room: _Whole, budget: int) -> _Whole:
    """Spends the rest of the budget on single steps, best gain for its cost first."""
    flat, gain, most = steps.ravel().copy(), weight.ravel(), room.ravel()
    while True:
        left = budget - int(np.square(flat).sum())
        cost = 2 * flat + 1
        open_ = np.flatnonzero((flat < most) & (cost <= left))
        if not open_.size:
            return flat.reshape(steps.shape)
        order = open_[np.argsort(-gain[open_] / cost[open_], kind="stable")]
        flat[order[np.cumsum(cost[order]) <= left]] += 1


def _check(image: Pixels, direction: Real, budget: int) -> None:
    if direction.shape != image.shape or not bool(np.isfinite(direction).all()):
        raise SoundnessError(
            f"a finite direction of shape {image.shape}",
            f"shape {direction.shape} or a value that is not finite",
            "look for NaN in the network's gradient",
        )
    if budget < 0:
        raise ConfigError("a squared budget >= 0", str(budget), "attack at a positive radius")
