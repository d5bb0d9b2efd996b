from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from smoothheads import seeding

paths = st.lists(st.one_of(st.integers(0, 5), st.sampled_from(["a", "b", "1", "a/int:1"])), max_size=3)


@given(st.integers(0, 3), paths, st.integers(0, 3), paths)
def test_different_paths_are_different_streams(
    seed: int, path: list[int | str], other_seed: int, other: list[int | str]
) -> None:
    same = seeding.derive(seed, *path) == seeding.derive(other_seed, *other)
    assert same == ((seed, path, list(map(type, path))) == (other_seed, other, list(map(type, other))))


def test_a_stream_does_not_depend_on_what_was_drawn_before() -> None:
    first = torch.randn(4, generator=seeding.generator(7, "noise", 3))
    torch.randn(99, generator=seeding.generator(7, "noise", 2))
    assert torch.equal(first, torch.randn(4, generator=seeding.generator(7, "noise", 3)))
    assert not torch.equal(first, torch.randn(4, generator=seeding.generator(7, "noise", 4)))


def draw(seed: int, *path: str | int) -> list[float]:
    with seeding.drawing(seed, *path):
        values: list[float] = torch.rand(4).tolist()
    return values


def test_what_others_draw_is_a_function_of_the_stream_s_name() -> None:
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
