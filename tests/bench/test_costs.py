"""The paper's cost tables, on the smallest networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smoothheads.bench.costs import CostSettings, measure
from smoothheads.report.table import to_text
from smoothheads.studies.costs import Costs, load, save, table


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


def test_costs_that_were_kept_stand_beside_the_published_ratios(costs: Costs, tmp_path: Path) -> None:
    assert load(tmp_path) is None
    save(costs, tmp_path)
    again = load(tmp_path)
    assert again is not None
    assert again.ratios() == costs.ratios()
    assert "0.332" in to_text(table("table2", again))
    assert "some / dnn10, smoothmix / consistency" in to_text(table("table8", again))
