from __future__ import annotations

import itertools

import numpy as np
import pytest

from smoothheads.bench.timing import Job, interleaved, ratio
from smoothheads.results.intervals import MedianInterval, interval_of_median


def test_interval_of_a_median() -> None:
    """Of 10 values the 2nd and the 9th enclose the median with probability 0.979, the 3rd and 8th 0.89."""
    assert interval_of_median(np.arange(1.0, 11.0)) == MedianInterval(5.5, 2.0, 9.0)


def test_few_values_give_all_there_is() -> None:
    assert interval_of_median(np.array([3.0, 1.0, 2.0])) == MedianInterval(2.0, 1.0, 3.0)


def test_interval_covers_the_median_as_often_as_it_says() -> None:
    """9 values: 2nd and 8th, 0.9609. 4,000 draws: below 0.943 or above 0.975 is less likely than 1e-6."""
    draws = np.random.default_rng(0).exponential(size=(4000, 9))
    found = [interval_of_median(each) for each in draws]
    covered = np.mean([each.low <= np.log(2) <= each.high for each in found])
    assert 0.943 < covered < 0.975


def test_every_job_runs_in_every_round_and_takes_turns() -> None:
    calls: list[str] = []

    def job(name: str) -> Job:
        def work(_: int) -> int:
            calls.append(name)
            return 6

        return work

    rounds: list[int] = []
    clock = map(float, itertools.count(step=2))  # every call of the clock is 2 s later
    rates = interleaved(
        {name: job(name) for name in "abc"}, 2, clock.__next__, lambda: rounds.append(len(calls))
    )
    assert calls == list("abcbcacab")
    assert {name: each.tolist() for name, each in rates.items()} == {name: [3.0, 3.0] for name in "abc"}
    assert rounds == [3, 6, 9]


def test_turns_are_numbered_so_that_work_can_differ() -> None:
    seen: list[int] = []

    def work(turn: int) -> int:
        seen.append(turn)
        return 1

    interleaved({"a": work}, 3)
    assert seen == [0, 1, 2, 3]


def test_ratio_is_taken_round_by_round() -> None:
    """A machine that halves its speed in between changes nothing."""
    slow_then_fast = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
    assert ratio(3 * slow_then_fast, slow_then_fast) == MedianInterval(3.0, 3.0, 3.0)


@pytest.mark.parametrize("count", range(1, 40))
def test_interval_contains_the_median(count: int) -> None:
    found = interval_of_median(np.random.default_rng(count).normal(size=count))
    assert found.low <= found.median <= found.high
