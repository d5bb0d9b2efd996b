from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from smoothheads.objectives import TeachingConfig
from smoothheads.objectives.pace import FLOOR, Adaptive, budget_lambda
from smoothheads.objectives.teaching import teaching_weights


def exponential(count: int) -> Tensor:
    """Losses at the quantiles of an exponential distribution of mean 1.2, one head."""
    ranks = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return -1.2 * torch.log1p(-ranks).unsqueeze(0)


def mean_weight(smoothed_LN: Tensor, lam: Tensor) -> float:
    return teaching_weights(smoothed_LN, lam, TeachingConfig(shift="self")).mean().item()


def adaptive(*, classes: int = 10, epochs: int = 5, **teaching: Any) -> Adaptive:
    return Adaptive(TeachingConfig(**teaching), classes, epochs)


@pytest.mark.parametrize(("budget", "lam", "easy"), [(0.7, 0.801, 0.49), (0.9, 2.297, 0.855)])
def test_a_budget_on_exponential_losses(budget: float, lam: float, easy: float) -> None:
    smoothed = exponential(20_000)
    found = budget_lambda(smoothed, budget)
    assert found.item() == pytest.approx(lam, abs=0.02)
    assert mean_weight(smoothed, found) == pytest.approx(budget, abs=1e-3)
    assert (smoothed <= found).double().mean().item() == pytest.approx(easy, abs=0.01)


def test_a_budget_below_the_least_mean_weight_gives_lambda_zero() -> None:
    smoothed = exponential(100)
    least = mean_weight(smoothed, torch.zeros(1, dtype=torch.float64))
    assert budget_lambda(smoothed, least - 0.01).item() == pytest.approx(0, abs=1e-12)
    assert budget_lambda(smoothed, least + 0.01).item() > 1e-3


@settings(max_examples=50)
@given(st.lists(st.floats(0, 20), min_size=2, max_size=40), st.floats(0.01, 0.99))
def test_a_budget_is_met_up_to_one_sample(losses: list[float], budget: float) -> None:
    """Weights jump as lambda passes a loss: the mean may exceed the budget, by one image's share at most."""
    smoothed = torch.tensor([sorted(set(losses))], dtype=torch.float64)
    found = budget_lambda(smoothed, budget)
    reached = mean_weight(smoothed, found)
    floor = mean_weight(smoothed, torch.zeros(1, dtype=torch.float64))
    assert reached >= budget - 1e-9
    assert reached <= max(budget + 1 / smoothed.shape[1], floor) + 1e-6


def test_each_head_has_its_own_budget() -> None:
    smoothed = torch.cat([exponential(500), 3 * exponential(500)])
    lam_L = budget_lambda(smoothed, 0.7)
    for head in range(2):
        assert mean_weight(smoothed[head : head + 1], lam_L[head : head + 1]) == pytest.approx(0.7, abs=0.01)
    assert lam_L[1] > lam_L[0]


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_a_quantile_makes_that_share_easy(share: float) -> None:
    pace = adaptive(pace="quantile", quantile_first=share, quantile_last=share, window=200, classes=1000)
    smoothed = exponential(200)
    for _ in range(300):
        lam = pace.threshold(3, smoothed)
    assert abs((smoothed <= lam).double().mean().item() - share) <= 1 / 200 + 1e-9


def test_the_easy_share_grows_from_the_first_to_the_last_epoch() -> None:
    shares = []
    for epoch in (2, 5):
        pace = adaptive(pace="quantile", window=200, classes=1000)
        for _ in range(300):
            lam = pace.threshold(epoch, exponential(200))
        shares.append((exponential(200) <= lam).double().mean().item())
    assert shares == pytest.approx([0.6, 0.9], abs=0.01)


def test_the_first_of_several_epochs_keeps_the_loss_of_a_guess() -> None:
    for epochs, moves in ((5, False), (1, True)):
        pace = adaptive(pace="budget", epochs=epochs)
        lam = [pace.threshold(1, exponential(50)).item() for _ in range(20)]
        assert (lam[-1] < math.log(10) - 0.1) == moves


def test_lambda_moves_slowly_and_stays_in_its_range() -> None:
    pace = adaptive(pace="quantile", quantile_first=0.5, quantile_last=0.5)
    easy = torch.full((2, 50), 1e-3)
    first = pace.threshold(2, easy)
    assert first.tolist() == pytest.approx([0.9 * math.log(10) + 0.1 * FLOOR] * 2)
    for _ in range(200):
        low = pace.threshold(2, easy)
    assert low.tolist() == pytest.approx([FLOOR] * 2)
    for _ in range(400):
        high = pace.threshold(2, easy + 50)
    assert high.tolist() == pytest.approx([math.log(10)] * 2)


def test_only_the_window_is_remembered() -> None:
    pace = adaptive(pace="quantile", window=30)
    for value in range(10):
        pace.threshold(2, torch.full((3, 8), float(value)))
    assert pace.state_dict()["recent"].shape == (3, 30)
    assert pace.state_dict()["recent"].min() == 6


@pytest.mark.parametrize("kind", ["quantile", "budget"])
def test_a_resumed_pace_goes_on_bit_for_bit(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [torch.rand(3, 16, generator=generator) * 3 for _ in range(12)]
    whole, first, second = (adaptive(pace=kind, window=40) for _ in range(3))
    expected = [whole.threshold(2, batch) for batch in batches]
    for batch in batches[:6]:
        first.threshold(2, batch)
    second.load_state_dict(first.state_dict())
    for batch in batches[6:]:
        first.threshold(2, batch)  # the state that was taken must not follow
    resumed = [second.threshold(2, batch) for batch in batches[6:]]
    assert all(torch.equal(a, b) for a, b in zip(expected[6:], resumed, strict=True))
