from __future__ import annotations

import torch

from smoothheads.models.randomness import drawing


def draw(seed: int, *path: str | int) -> list[float]:
    with drawing(seed, *path):
        values: list[float] = torch.rand(4).tolist()
    return values


def test_a_stream_is_a_function_of_its_name() -> None:
    first = draw(0, "init", 0)
    torch.rand(5)
    assert draw(0, "init", 0) == first
    assert draw(0, "init", 1) != first
    assert draw(1, "init", 0) != first


def test_the_outside_does_not_notice() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    draw(0, "init")
    assert torch.equal(torch.rand(2), expected)
