from __future__ import annotations

import pytest
import torch

from smoothheads.errors import ConfigError
from smoothheads.models.normalize import Normalize


def test_each_channel_has_its_own_mean_and_std() -> None:
    x = torch.tensor([1.0, 1.0]).reshape(1, 2, 1, 1)
    out = Normalize([0.5, 0.25], [0.25, 0.5])(x)
    assert out.flatten().tolist() == [2.0, 1.5]


def test_pixels_beyond_the_range_are_not_clipped() -> None:
    out = Normalize([0.0], [0.5])(torch.tensor([-1.0, 3.0]).reshape(1, 1, 1, 2))
    assert out.flatten().tolist() == [-2.0, 6.0]


def test_it_travels_with_the_weights() -> None:
    other = Normalize([0.0], [1.0])
    other.load_state_dict(Normalize([0.5], [0.25]).state_dict())
    assert other(torch.ones(1, 1, 1, 1)).item() == 2.0
    assert not list(other.parameters())


@pytest.mark.parametrize(("mean", "std"), [([0.5], [0.0]), ([0.5], [-1.0]), ([0.5, 0.5], [1.0])])
def test_impossible_statistics_are_refused(mean: list[float], std: list[float]) -> None:
    with pytest.raises(ConfigError):
        Normalize(mean, std)
