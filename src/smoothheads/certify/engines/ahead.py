"""Work done one step ahead, in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(make: Callable[[int], T], items: Sequence[int]) -> Iterator[T]:
    """`make(item)` of every item in order; the next one is made while the caller is busy with this one."""
    if len(items) < 2:
        yield from map(make, items)
        return
    with ThreadPoolExecutor(1) as background:
        coming = background.submit(make, items[0])
        for item in items[1:]:
            ready = coming.result()
            coming = background.submit(make, item)
            yield ready
        yield coming.result()
