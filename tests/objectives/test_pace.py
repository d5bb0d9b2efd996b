from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import pytest
import torch

from smoothheads.objectives import TeachingConfig
from smoothheads.objectives.pace import Adaptive, build_pace, radius_lambda, scheduled_lambda

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


@pytest.mark.parametrize(
    ("radius", "lam"), [(0.0, math.log(2)), (1.0, -math.log(0.8413447460685429)), (-1.0, 1.8410216450092636)]
)
def test_lambda_of_a_radius_is_that_of_its_probability(radius: float, lam: float) -> None:
    assert radius_lambda(radius) == pytest.approx(lam, abs=1e-12)


def test_the_radius_pace_has_no_cliff_with_many_classes() -> None:
    settings = TeachingConfig(pace="radius")
    lam = [scheduled_lambda(settings, epoch=t, epochs=90, classes=1000) for t in range(1, 91)]
    assert lam[0] == math.log(1000)
    assert lam[-1] == math.log(2)
    steps = [a - b for a, b in pairwise(lam)]
    assert min(steps) == pytest.approx(max(steps))


def test_a_schedule_gives_every_head_the_same_and_remembers_nothing() -> None:
    pace = build_pace(TeachingConfig(), classes=10, epochs=150)
    lam_L = pace.threshold(10, torch.zeros(5, 7))
    assert lam_L.tolist() == pytest.approx([2.070972] * 5, abs=1e-6)
    assert pace.state_dict() == {}


@pytest.mark.parametrize("pace", ["quantile", "budget"])
def test_paces_that_look_at_the_losses(pace: Literal["quantile", "budget"]) -> None:
    assert isinstance(build_pace(TeachingConfig(pace=pace), classes=10, epochs=5), Adaptive)
