from __future__ import annotations

import math

import pytest
import torch

from smoothheads.objectives import TeachingConfig
from smoothheads.objectives.pace import Pace, scheduled_lambda

LN10 = math.log(10)
TABLE = [
    (
        LN10,
        1.2,
        150,
        {1: 2.302585, 2: 2.269852, 10: 2.070972, 25: 1.843369, 50: 1.618103, 100: 1.360568, 150: 1.2},
    ),
    (LN10, 1.0, 150, {2: 2.250277, 10: 1.969746, 25: 1.692782, 50: 1.440936, 100: 1.166758, 150: 1.0}),
    (LN10, 0.8, 150, {2: 2.220954, 10: 1.846052, 25: 1.527125, 50: 1.255986, 100: 0.970710, 150: 0.8}),
    (LN10, 1.6, 150, {2: 2.290961, 10: 2.207718, 25: 2.084831, 50: 1.935382, 100: 1.736090, 150: 1.6}),
    (2.0, 1.0, 10, {1: 2.0, 2: 1.698970, 10: 1.0}),
    (math.log(1000), 1.0, 90, {1: 6.907755, 2: 2.949343, 10: 1.995143, 25: 1.569177, 50: 1.259193, 90: 1.0}),
]


@pytest.mark.parametrize(("first", "last", "epochs", "expected"), TABLE)
def test_the_log10_schedule(first: float, last: float, epochs: int, expected: dict[int, float]) -> None:
    settings = TeachingConfig(lambda_first=first, lambda_last=last)
    for epoch, lam in expected.items():
        got = scheduled_lambda(settings, epoch=epoch, epochs=epochs, classes=10)
        assert got == pytest.approx(lam, abs=1e-6)


def test_lambda_starts_at_the_loss_of_a_guess() -> None:
    for classes in (2, 10, 1000):
        assert scheduled_lambda(TeachingConfig(), epoch=1, epochs=5, classes=classes) == math.log(classes)


def test_a_single_epoch_has_the_last_lambda() -> None:
    for pace in ("log10", "linear", "fixed"):
        settings = TeachingConfig(pace=pace)
        assert scheduled_lambda(settings, epoch=1, epochs=1, classes=10) == 1.2


def test_fixed_and_linear_schedules() -> None:
    fixed, linear = TeachingConfig(pace="fixed"), TeachingConfig(pace="linear", lambda_first=2.0)
    assert {scheduled_lambda(fixed, epoch=t, epochs=9, classes=10) for t in range(1, 10)} == {1.2}
    assert scheduled_lambda(linear, epoch=5, epochs=9, classes=10) == pytest.approx(1.6)


def test_schedule_same_for_all_heads_and_classes() -> None:
    pace = Pace(TeachingConfig(), classes=10, epochs=150)
    lam_LC = pace.update(10, torch.zeros(5, 7), torch.zeros(7, dtype=torch.long))
    assert lam_LC.shape == (5, 10)
    assert lam_LC.flatten().tolist() == pytest.approx([2.070972] * 50, abs=1e-6)
    assert pace.state == {}
