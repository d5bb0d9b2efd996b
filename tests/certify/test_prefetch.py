from __future__ import annotations

import threading

import pytest

from smoothheads.certify.votes import prefetch


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_everything_comes_once_and_in_order(count: int) -> None:
    assert list(prefetch(lambda item: item * item, range(count))) == [i * i for i in range(count)]


def test_the_next_is_made_while_the_caller_is_busy_and_not_more() -> None:
    made: list[int] = []
    reached = {item: threading.Event() for item in range(4)}

    def make(item: int) -> int:
        made.append(item)
        reached[item].set()
        return item

    for item in prefetch(make, range(4)):
        assert reached[min(item + 1, 3)].wait(10)  # would hang if it were only made when asked for
        assert max(made) <= item + 1


def test_an_error_comes_out_where_its_item_would() -> None:
    got: list[float] = []
    with pytest.raises(ZeroDivisionError):
        got.extend(prefetch(lambda item: 1 / (item - 2), range(4)))
    assert got == [-0.5, -1.0]
