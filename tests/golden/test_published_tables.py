"""The published certification logs give the published numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from smoothheads.results import metrics
from smoothheads.results.compare import summarize
from smoothheads.results.read import read_log
from smoothheads.results.results import Results

pytestmark = pytest.mark.shared


@dataclass(frozen=True)
class Some:
    """A row of the SOME paper's CIFAR-10 table, and what its log adds."""

    name: str
    acr: float
    printed: float
    standard_error: float
    cells: tuple[float, ...]
    abstained: int
    wrong: int
    at_ceiling: int
    seconds: float


SOME = [
    Some("gaussian-0.25", 0.537321, 0.537, 0.0165, (83.4, 71.6, 54.4, 40.4), 20, 63, 120, 12.8),
    Some(
        "consistency-0.50",
        0.745032,
        0.745,
        0.0330,
        (65.2, 59.6, 52.4, 45.0, 37.6, 30.4, 23.8, 17.6),
        41,
        133,
        68,
        12.5,
    ),
    Some(
        "smoothmix-1.00",
        0.870185,
        0.870,
        0.0603,
        (38.4, 36.2, 33.8, 32.0, 30.2, 28.4, 26.2, 24.2, 22.0, 19.0),
        34,
        274,
        56,
        12.6,
    ),
]

# Rows, ACR, and certified accuracy at 0, 0.5, 1, ... of Cohen et al.'s logs.
COHEN: list[tuple[str, int, float, tuple[float, ...]]] = [
    ("imagenet-0.25", 427, 0.4765, (0.667, 0.494)),
    ("imagenet-0.50", 500, 0.7325, (0.572, 0.458, 0.372, 0.286)),
    ("imagenet-1.00", 500, 0.8752, (0.436, 0.378, 0.326, 0.260, 0.194, 0.148, 0.122)),
    ("cifar10-0.25", 500, 0.4289, ()),
    ("cifar10-0.50", 500, 0.5375, ()),
    ("cifar10-1.00", 500, 0.5417, ()),
]


def _log(shared_data: Path, group: str, name: str) -> Results:
    return read_log(shared_data / "published-logs" / group / f"{name}.tsv")


@pytest.mark.parametrize("published", SOME, ids=lambda p: p.name)
def test_some(shared_data: Path, published: Some) -> None:
    log = _log(shared_data, "some", published.name)
    radii = [0.25 * i for i in range(10)]
    cells = 100 * log.certified_accuracy(radii)
    padded = published.cells + (0.0,) * (10 - len(published.cells))
    np.testing.assert_allclose(cells, padded, atol=1e-9)
    summary = summarize(log)
    assert log.index.tolist() == list(range(0, 10_000, 20))
    assert summary.acr.value == pytest.approx(published.acr, abs=5e-7)
    assert round(summary.acr.value, 3) == published.printed
    assert summary.acr.standard_error == pytest.approx(published.standard_error, abs=5e-5)
    assert int(log.abstained.sum()) == published.abstained
    assert int(np.sum(~log.correct & ~log.abstained)) == published.wrong
    assert summary.seconds.value == pytest.approx(published.seconds, abs=0.05)


@pytest.mark.parametrize("published", SOME, ids=lambda p: p.name)
def test_some_at_the_ceiling(shared_data: Path, published: Some) -> None:
    log = _log(shared_data, "some", published.name)
    sigma = float(published.name[-4:])
    top = metrics.at_ceiling(log.radius, sigma * 3.811456563390)
    assert int(top.sum()) == published.at_ceiling
    assert len(set(log.radius[top])) == 1


@pytest.mark.parametrize(("name", "images", "acr", "accuracies"), COHEN)
def test_cohen(shared_data: Path, name: str, images: int, acr: float, accuracies: tuple[float, ...]) -> None:
    log = _log(shared_data, "cohen", name)
    radii = [0.5 * i for i in range(len(accuracies))]
    assert len(log) == images
    assert log.acr == pytest.approx(acr, abs=5e-5)
    found = log.certified_accuracy(radii)
    np.testing.assert_allclose(np.round(found, 3), accuracies, atol=1e-9)


def test_ties_with_a_reporting_threshold_are_worth_a_cell(shared_data: Path) -> None:
    """Three images are printed exactly 1.75; a strict reading would lose 0.6 points."""
    log = _log(shared_data, "some", "consistency-0.50")
    assert sum(log.correct[i] and log.radius[i] == 1.75 for i in range(500)) == 3
