from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from smoothheads.report import tables
from smoothheads.report.table import to_text
from smoothheads.results.manifest import Manifest
from smoothheads.results.results import Results

Make = Callable[..., Results]


def told(log: Results, **changes: Any) -> Manifest:
    """Its manifest, with other settings."""
    assert log.manifest is not None
    return replace(log.manifest, certify=log.manifest.certify.changed(**changes))


def test_linf_radii_are_shown_in_steps_of_the_grid(make_log: Make) -> None:
    log = make_log()
    shown = replace(log, manifest=replace(told(log), shape=(1, 8, 8), grid=16))
    found = tables.linf(shown)
    assert found.radii == (0.0, 0.125, 0.25, 0.5, 1.0, 2.0)  # the largest is 1.23 / 8 * 16 = 2.46 steps
    table = found.table()
    assert table.columns == ("threat", "ACR", "0", "0.125", "0.25", "0.5", "1", "2")
    assert "in steps of 1/16" in table.title
    assert float(str(table.rows[0][1].value)) == pytest.approx((log.radius * log.correct).mean() * 2)
    at_one = (log.correct & (log.radius >= 0.5)).mean()  # 1/16 in l-infinity is 8/16 in l2
    assert float(str(table.rows[0][6].value)) == pytest.approx(at_one)
    (plain,) = found.to_json()
    assert plain["radii"][-1] == pytest.approx(2 / 16)
    assert plain["images"][0]["radius"] == pytest.approx(log.radius[0] / 8)
    assert "l-infinity" in to_text(table)


def test_top_k_stands_beside_the_log_s_own_certificates(make_log: Make) -> None:
    log = make_log()
    found = tables.top_k(log, [1], [0, 0.5])
    own, first = found.table().rows
    assert (own[0].text, first[0].text) == ("the log itself", "top-1")
    assert float(str(own[2].value)) == log.correct.mean()
    assert [each["threat"] for each in found.to_json()] == ["the log itself", "top-1"]
    assert [each["norm"] for each in found.to_json()] == ["l2", "l2"]
