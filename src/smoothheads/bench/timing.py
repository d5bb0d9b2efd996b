"""Rates of several jobs that take turns, so that a busy moment of the machine hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from smoothheads.results.intervals import Floats, MedianInterval, interval_of_median

K = TypeVar("K")
Job = Callable[[int], int]
"""Does one turn's work, the same every turn, and says how much it was."""
OnRound = Callable[[], None]
"""Called after every round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """What is set of every benchmark whose contenders take turns."""

    rounds: int = 9
    threads: int = 1

    @property
    def steps(self) -> int:
        """How often `on_round` is called."""
        return self.rounds + 1


def interleaved(
    jobs: Mapping[K, Job],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    on_round: OnRound | None = None,
) -> dict[K, Floats]:
    """Work per second of every job in every round. The order turns from round to round; an extra first round
    only warms up and is not kept."""
    names = list(jobs)
    rates: dict[K, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            started = clock()
            work = jobs[name](turn)
            rates[name].append(work / (clock() - started))
        if on_round:
            on_round()
    return {name: np.array(each[1:]) for name, each in rates.items()}


def ratio(rates: Floats, baseline: Floats) -> MedianInterval:
    """How many times faster, round by round."""
    return interval_of_median(rates / baseline)
