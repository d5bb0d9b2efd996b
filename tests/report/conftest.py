"""Logs with known numbers, with votes and without."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.radius import l2_radius
from smoothheads.results.log import Log
from smoothheads.results.row import Row
from smoothheads.types import ABSTAIN, Votes


def _row(index: int, k: int) -> Row:
    p_lower = clopper_pearson_lower(k, 1000, 0.001)
    radius = l2_radius(p_lower, 0.5)
    votes = Votes(("ensemble",), np.array([[k, 1000 - k]]))
    prediction = 0 if radius > 0 else ABSTAIN
    return Row(index, 0, prediction, radius, 2.0, 100, 1000, k, p_lower, votes=votes)


@pytest.fixture
def make_log() -> Callable[..., Log]:
    """40 images of which `right` have the votes 1000, 990, 980, ... and the others none."""

    def make(name: str = "some", right: int = 30) -> Log:
        rows = [_row(i, max(1000 - 10 * i, 0) if i < right else 0) for i in range(40)]
        return Log(
            name=name,
            index=np.arange(40),
            label=np.zeros(40, dtype=np.int64),
            prediction=np.array([row.prediction for row in rows]),
            radius=np.array([row.radius for row in rows]),
            seconds=np.full(40, 2.0),
            sigma=0.5,
            alpha=0.001,
            n=1000,
            n0=100,
            manifest={"data": {"name": "digits"}, "scope": "a scope", "weights": "abc"},
            rows=tuple(rows),
        )

    return make
