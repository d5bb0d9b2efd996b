from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm
from torch import Tensor

from smoothheads.errors import TrainingError
from smoothheads.objectives import AcrTargeted
from smoothheads.objectives.acr_targeted import RadiusCurriculum, radius_weights

SHARES = torch.tensor([0.0, 0.3, 0.5, 0.9, 1.0])


class Measured:
    def __init__(self, shares: Tensor) -> None:
        self.shares, self.draws = shares, list[int]()

    def __call__(self, draws: int) -> Tensor:
        self.draws.append(draws)
        return self.shares


def test_weights_are_radii_of_lower_bounds() -> None:
    weights = radius_weights(np.array([0.0, 0.75, 13 / 16, 1.0]), 16)
    lower = [beta.ppf(0.1, k, 17 - k) for k in (12, 12, 13)] + [0.1 ** (1 / 16)]
    assert weights.tolist() == pytest.approx([norm.ppf(p) for p in lower], rel=1e-9)
    assert weights[0] > 0


def test_it_measures_only_when_images_are_due() -> None:
    curriculum, measured = RadiusCurriculum(AcrTargeted(start=3, every=2), 5), Measured(SHARES)
    calls = []
    for epoch in range(1, 9):
        curriculum.refresh(epoch, measured)
        calls.append(len(measured.draws))
    assert calls == [0, 0, 0, 2, 2, 3, 3, 4]
    assert measured.draws == [100, 16, 16, 16]


def test_dropped_images_never_come_back_and_easy_ones_come_more_often() -> None:
    curriculum = RadiusCurriculum(AcrTargeted(start=0), 5)
    curriculum.refresh(1, Measured(SHARES))
    curriculum.refresh(11, Measured(torch.ones(5)))
    curriculum.refresh(21, Measured(SHARES))
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(5)
    for _ in range(200):
        order = curriculum.order(21, generator)
        assert order is not None
        assert len(order) == 5
        counts += order.bincount(minlength=5)
    assert counts[:2].tolist() == [0, 0]
    assert counts[4] > counts[3] > counts[2] > 0


def test_before_the_start_the_order_is_the_usual_one() -> None:
    assert RadiusCurriculum(AcrTargeted(start=2), 5).order(2, torch.Generator()) is None


def test_the_state_survives() -> None:
    first, second = (RadiusCurriculum(AcrTargeted(start=0), 5) for _ in range(2))
    first.refresh(1, Measured(SHARES))
    second.load_state_dict(first.state_dict())
    orders = [c.order(1, torch.Generator().manual_seed(1)) for c in (first, second)]
    assert orders[0] is not None
    assert orders[1] is not None
    assert torch.equal(orders[0], orders[1])


def test_dropping_everything_is_refused() -> None:
    with pytest.raises(TrainingError, match="lower keep or start later"):
        RadiusCurriculum(AcrTargeted(start=0), 5).refresh(1, Measured(torch.zeros(5)))


@pytest.mark.parametrize("draws", [14, 16, 17, 100])
def test_weights_are_positive_from_the_fewest_draws_on(draws: int) -> None:
    weights = radius_weights(np.linspace(0, 1, 20), draws)
    assert weights.min() > 0
    assert (np.diff(weights) >= 0).all()
