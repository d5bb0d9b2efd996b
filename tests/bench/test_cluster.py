"""The simulated cluster: the real scheduler on recorded costs."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from smoothheads.bench.cluster import WAYS, ClusterSettings, SimulatedRun, recorded, run, simulate

SETTINGS = ClusterSettings(data=("imagenet",), workers=(64,))


@pytest.fixture(scope="module")
def found() -> list[SimulatedRun]:
    return simulate(SETTINGS)


def test_64_workers_are_busy_nine_tenths_of_the_time(found: list[SimulatedRun]) -> None:
    assert len(found) == 6
    for each in found:
        assert 0 < each.efficiency <= 1
        if each.way != WAYS[0]:
            assert each.efficiency >= 0.9, each


def test_splitting_images_is_what_it_takes(found: list[SimulatedRun]) -> None:
    of = {(each.data, each.budget, each.way): each for each in found}
    whole, split = (of["imagenet", "table", way] for way in WAYS[:2])
    assert whole.efficiency < 0.9 < split.efficiency
    assert split.hours < whole.hours


def test_costs_are_those_of_the_table_budget() -> None:
    kept = {(data, budget): costs for data, budget, costs in recorded()}
    assert {key: len(costs) for key, costs in kept.items()} == {
        (data, budget): images
        for data, images in (("imagenet", 500), ("cifar10", 10_000))
        for budget in ("table", "fixed")
    }
    assert min(kept["cifar10", "table"]) == 500
    assert max(kept["cifar10", "table"]) == 100_100


def test_it_is_shown_and_drawn(found: list[SimulatedRun]) -> None:
    rounds: list[None] = []
    outcome = run(SETTINGS, lambda: rounds.append(None))
    assert len(rounds) == SETTINGS.steps == len(outcome.table.rows) == 6
    assert outcome.to_json()["found"] == [asdict(each) for each in found]
    assert len(outcome.figure.axes[0].lines) == 4
