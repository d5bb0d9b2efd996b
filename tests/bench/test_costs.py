"""The paper's cost tables, on the smallest networks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from smoothheads.bench.cost_table import table
from smoothheads.bench.costs import Costs, CostSettings, from_json, measure, to_json
from smoothheads.report.table import to_text


@pytest.fixture(scope="module")
def costs() -> Costs:
    settings = CostSettings(arch="resnet8", side=8, images=2, samples=4, rounds=1)
    return measure(("table2", "table8"), settings)


def test_arithmetic_is_counted_and_time_is_measured(costs: Costs) -> None:
    assert costs.gflops["gaussian", "dnn5"] == pytest.approx(5 * costs.gflops["gaussian", "single"], rel=1e-3)
    assert costs.ratio("gflops", ("gaussian", "some"), ("gaussian", "dnn5")) == pytest.approx(
        (0.433,) * 3, abs=0.01
    )
    trained_apart = costs.train["gaussian", "single"] / costs.train["gaussian", "dnn5"]
    assert np.allclose(trained_apart, 5)
    assert costs.ratio("train", ("gaussian", "some"), ("nobody", "some")) is None


def test_costs_come_back_from_json_and_stand_beside_the_published_ratios(costs: Costs) -> None:
    again = from_json(json.loads(json.dumps(to_json(costs))))
    assert again.ratios() == costs.ratios()
    assert "0.332" in to_text(table("table2", again))
    assert "some / dnn10, smoothmix / consistency" in to_text(table("table8", again))
