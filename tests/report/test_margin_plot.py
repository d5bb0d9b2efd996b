from __future__ import annotations

import numpy as np
import pytest

from smoothheads.report import plots
from smoothheads.results.diversity import Margins


@pytest.mark.parametrize(
    ("heads", "names"), [(1, ["network"]), (3, ["ensemble", "head-1", "head-2", "head-3"])]
)
def test_a_curve_for_the_ensemble_and_each_head(heads: int, names: list[str]) -> None:
    margins = Margins(heads)
    margins.add(2 * np.random.default_rng(0).normal(size=(heads, 400, 5)), 2)
    (axes,) = plots.margin_histogram([("a", margins)], "an $odd_name").axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == names
    values, edges, _ = axes.patches[0].get_data()  # type: ignore[attr-defined]
    assert values.sum() == pytest.approx(1)
    right = margins.to_dict()["curves"]["ensemble"]["correct"]
    assert values[edges[:-1] > -1e-9].sum() == pytest.approx(right)
    assert plots.render(axes.figure, "svg").count(b"an $odd_name") == 1  # type: ignore[arg-type]


def test_one_copy_can_be_drawn() -> None:
    margins = Margins(1)
    margins.add(np.zeros((1, 1, 3)), 0)
    assert plots.render(plots.margin_histogram([("a", margins)], "one"), "png").startswith(b"\x89PNG")


def test_several_networks_are_told_by_name() -> None:
    networks = []
    for name, heads in (("some", 3), ("single", 1)):
        margins = Margins(heads)
        margins.add(np.random.default_rng(1).normal(size=(heads, 50, 3)), 0)
        networks.append((name, margins))
    legend = plots.margin_histogram(networks, "two").axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["some", "single"]
