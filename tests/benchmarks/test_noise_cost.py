from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.noise_cost import Settings, interval_of_median, lines, make_jobs, times


def test_interval_of_a_median() -> None:
    """Of 10 values the 2nd and the 9th enclose the median with probability 0.979, the 3rd and 8th 0.89."""
    assert interval_of_median(np.arange(1.0, 11.0)) == (5.5, 2.0, 9.0)


def test_every_job_runs_in_every_round_and_takes_turns() -> None:
    calls: list[str] = []

    def job(name: str) -> Callable[[int], None]:
        return lambda _: calls.append(name)

    found = times({name: job(name) for name in "abc"}, rounds=2)
    assert calls == list("abcbcacab")
    assert {name: len(seconds) for name, seconds in found.items()} == dict.fromkeys("abc", 2)


def test_lines_compare_with_grid_noise() -> None:
    found = {"grid": np.full(30, 1.01), "float": np.full(30, 1.0)}
    rows = lines("votes", found, block=101)
    assert rows == ["| votes | grid | 100 |  |", "| votes | float | 101 | +1.00 % (+1.00 to +1.00) |"]


@pytest.mark.parametrize("kind", [0, 1])
def test_all_noises_do_the_same_work(kind: int) -> None:
    jobs = make_jobs(Settings(arch="resnet8", side=8, block=4))[kind]
    assert set(jobs) == {"grid", "keyed float", "torch.randn"}
    for job in jobs.values():
        job(0)
