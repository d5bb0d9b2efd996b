"""Timing in turns, and the paper's cost tables measured on the smallest networks."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from benchmarks.costs import measure
from benchmarks.timing import Job, describe_machine, interleaved, ratio

from smoothheads.report.table import to_text
from smoothheads.results.metrics import MedianInterval, interval_of_median
from smoothheads.studies.costs import Costs, CostSettings, load, save, table


def test_interval_of_median_ten_values() -> None:
    """Of 10 values the 2nd and the 9th enclose the median with probability 0.979, the 3rd and 8th 0.89."""
    assert interval_of_median(np.arange(1.0, 11.0)) == MedianInterval(5.5, 2.0, 9.0)


def test_interval_of_median_three_values() -> None:
    assert interval_of_median(np.array([3.0, 1.0, 2.0])) == MedianInterval(2.0, 1.0, 3.0)


def test_interval_of_median_coverage() -> None:
    """9 values: 2nd and 8th, 0.9609. 4,000 draws: below 0.943 or above 0.975 is less likely than 1e-6."""
    draws = np.random.default_rng(0).exponential(size=(4000, 9))
    found = [interval_of_median(each) for each in draws]
    covered = np.mean([each.low <= np.log(2) <= each.high for each in found])
    assert 0.943 < covered < 0.975


def test_interleaved_rotates_the_order() -> None:
    calls: list[str] = []

    def job(name: str) -> Job:
        def work(_: int) -> int:
            calls.append(name)
            return 6

        return work

    clock = map(float, itertools.count(step=2))  # every call of the clock is 2 s later
    rates = interleaved({name: job(name) for name in "abc"}, 2, clock.__next__)
    assert calls == list("abcbcacab")
    assert {name: each.tolist() for name, each in rates.items()} == {name: [3.0, 3.0] for name in "abc"}


def test_interleaved_numbers_the_turns() -> None:
    seen: list[int] = []

    def work(turn: int) -> int:
        seen.append(turn)
        return 1

    interleaved({"a": work}, 3)
    assert seen == [0, 1, 2, 3]


def test_ratio_round_by_round() -> None:
    """A machine that halves its speed in between changes nothing."""
    slow_then_fast = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
    assert ratio(3 * slow_then_fast, slow_then_fast) == MedianInterval(3.0, 3.0, 3.0)


@pytest.mark.parametrize("count", range(1, 40))
def test_interval_of_median_contains_it(count: int) -> None:
    found = interval_of_median(np.random.default_rng(count).normal(size=count))
    assert found.low <= found.median <= found.high


@pytest.fixture(scope="module")
def costs() -> Costs:
    settings = CostSettings(arch="resnet8", side=8, images=2, samples=4, rounds=1)
    return measure(("table2", "table8"), settings)


def test_measure_counts_and_times(costs: Costs) -> None:
    assert costs.gflops["gaussian dnn5"] == pytest.approx(5 * costs.gflops["gaussian single"], rel=1e-3)
    assert costs.ratio("gflops", "gaussian some", "gaussian dnn5") == pytest.approx((0.433,) * 3, abs=0.01)
    single, apart = (np.array(costs.train[f"gaussian {name}"]) for name in ("single", "dnn5"))
    assert np.allclose(single / apart, 5)
    assert costs.ratio("train", "gaussian some", "nobody some") is None


def test_saved_costs_in_the_table(costs: Costs, tmp_path: Path) -> None:
    assert load(tmp_path) is None
    save(costs, tmp_path)
    again = load(tmp_path)
    assert again is not None
    assert again.ratios() == costs.ratios()
    assert "0.332" in to_text(table("table2", again))
    assert "some / dnn10, smoothmix / consistency" in to_text(table("table8", again))


def test_describe_machine_names_processor_and_versions() -> None:
    machine = describe_machine(3)
    assert machine["threads"] == 3
    assert machine["cores"] >= 1
    assert machine["processor"]
    assert machine["versions"]["torch"]
