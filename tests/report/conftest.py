"""Logs with known numbers, with votes and without."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.config import CertifyConfig
from smoothheads.noise.laws import l2_radius
from smoothheads.results.manifest import DataFacts, Manifest
from smoothheads.results.results import Results
from smoothheads.types import ABSTAIN, Certificate, Certified, Votes

MANIFEST = Manifest(
    certify=CertifyConfig(sigma=0.5, seed=0, n=1000),
    aggregations=("ensemble",),
    classes=2,
    correction=0.0,
    data=DataFacts(name="digits", fingerprint="f"),
    scope="a scope",
    weights="abc",
)


def _row(index: int, k: int) -> Certified:
    p_lower = clopper_pearson_lower(k, 1000, 0.001)
    radius = l2_radius(p_lower, 0.5)
    votes = Votes(("ensemble",), np.array([[k, 1000 - k]]))
    prediction = 0 if radius > 0 else ABSTAIN
    selection = Votes(("ensemble",), np.array([[100, 0]]))
    return Certified(index, 0, Certificate(prediction, radius, p_lower, k, 1000, 100), selection, votes, 2.0)


@pytest.fixture
def make_log() -> Callable[..., Results]:
    """40 images of which `right` have the votes 1000, 990, 980, ... and the others none."""

    def make(name: str = "some", right: int = 30) -> Results:
        rows = [_row(i, max(1000 - 10 * i, 0) if i < right else 0) for i in range(40)]
        return Results.of(name, rows, MANIFEST)

    return make
