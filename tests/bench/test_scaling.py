from __future__ import annotations

import numpy as np

from smoothheads.bench import scaling
from smoothheads.bench.scaling import Axis, ScalingSettings


def axis(rates: dict[int, float]) -> Axis:
    return Axis("n", "samples/s", {value: np.full(7, rate) for value, rate in rates.items()})


def test_a_linear_cost_has_no_knee() -> None:
    found = axis({1: 80.0, 10: 100.0, 100: 95.0})
    assert found.knee is None
    assert found.relative(10).median == 1.0
    assert found.relative(1).median == 1.25


def test_the_knee_is_where_a_unit_costs_a_quarter_more() -> None:
    assert axis({1: 100.0, 2: 99.0, 3: 70.0, 4: 50.0}).knee == 3


def test_a_start_up_cost_is_no_knee() -> None:
    """Small values are dearer by what is fixed; the knee is behind the cheapest."""
    assert axis({1: 10.0, 2: 50.0, 3: 100.0}).knee is None


def test_all_axes_are_measured() -> None:
    settings = ScalingSettings(
        n=(100, 200),
        heads=(1, 2),
        sides=(8, 16),
        blocks=(1, 2),
        workers=(1,),
        samples=100,
        images=2,
        rounds=1,
    )
    outcome = scaling.run(settings)
    axes = outcome.to_json()["axes"]
    assert [(name, list(axis["rates"])) for name, axis in axes.items()] == [
        ("n", ["100", "200"]),
        ("heads", ["1", "2"]),
        ("image side", ["8", "16"]),
        ("blocks per pass", ["1", "2"]),
        ("workers", ["1"]),
    ]
    assert all(rate > 0 for axis in axes.values() for rates in axis["rates"].values() for rate in rates)
    assert len(outcome.figure.axes) == 5
    assert len(outcome.table.rows) == 9
