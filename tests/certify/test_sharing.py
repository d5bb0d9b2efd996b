"""Tasks that are shared out, lost, repeated and answered in any order give the votes of one process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.drive import Drive, Flight
from smoothheads.certify.engines import Engine, Request
from smoothheads.certify.sharing import Sharing, Task
from smoothheads.data import Splits, SubsetConfig, select
from smoothheads.models.multihead import MultiHead
from smoothheads.results.row import to_line
from smoothheads.smoothed import Smoothed
from smoothheads.types import Phase, Pixels

SIZE = 10
BLANK: Pixels = np.zeros((1, 1, 1), dtype=np.uint8)


@dataclass
class Image:
    """Asks for counts one after another; a vote is the number of its block, so that sums tell which blocks
    were counted how often."""

    index: int
    counts: Sequence[int]
    error: Exception | None = None
    request: Request | None = None
    given: list[int] = field(default_factory=list)
    fails: bool = False
    started: bool = False

    def start(self) -> None:
        assert not self.started
        self.started, self._left, self._block = True, list(self.counts), 0
        self._ask()

    def take(self, count: int, votes: int) -> None:
        assert self.request is not None
        assert count == self.request.count
        self._block += -(-count // SIZE)
        self.given.append(votes)
        self._ask()

    def _ask(self) -> None:
        self.request = None
        if self._left:
            self.request = Request(BLANK, self.index, Phase.ESTIMATION, self._block, self._left.pop(0))
        elif self.fails:
            self.error = ValueError(f"image {self.index}")


def answer(request: Request) -> int:
    """Samples of every block, weighted with a number of the block that no others add up to."""
    total = 0
    for done in range(0, request.count, SIZE):
        total += min(SIZE, request.count - done) * 31 ** (request.block + done // SIZE)
    return total


def alone(image: Image) -> list[int]:
    copy = Image(image.index, image.counts)
    copy.start()
    while copy.request is not None:
        copy.take(copy.request.count, answer(copy.request))
    return copy.given


@given(
    counts=st.lists(st.lists(st.integers(1, 200), min_size=0, max_size=4), max_size=12),
    workers=st.integers(1, 6),
    per_pass=st.integers(1, 3),
    seconds=st.sampled_from([1e-4, 0.05, 0.4, 3.0]),
    seed=st.integers(0, 10**6),
    split=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_whoever_counts_and_whatever_is_lost_the_votes_are_those_of_one(
    *, counts: list[list[int]], workers: int, per_pass: int, seconds: float, seed: int, split: bool
) -> None:
    images = [Image(index, asked) for index, asked in enumerate(counts)]
    sharing: Sharing[Image] = Sharing(
        iter(images), total=len(images), typical=100, size=SIZE, per_pass=per_pass, split=split
    )
    chance, order = random.Random(seed), []
    busy: list[Task[Image]] = []
    late: list[Task[Image]] = []
    for _ in range(10_000):
        while len(busy) < workers and (task := sharing.next(seconds, workers)) is not None:
            busy.append(task)
        order += [image.index for image in sharing.ended()]
        if sharing.over:
            break
        assert busy, "somebody must be at work as long as something is left"
        task = busy.pop(chance.randrange(len(busy)))
        if chance.random() < 0.3:
            sharing.lost(task.number)
            late.append(task)
        else:
            assert sharing.done(task.number, [answer(request) for request in task.requests])
        if late and chance.random() < 0.5:
            ghost = late.pop()
            assert not sharing.done(ghost.number, [answer(request) for request in ghost.requests])
    assert order == list(range(len(images)))
    assert [image.given for image in images] == [alone(image) for image in images]


def test_the_last_long_image_is_split_among_all_workers() -> None:
    sharing: Sharing[Image] = Sharing(iter([Image(0, [100_000])]), total=1, typical=100_000, size=SIZE)
    tasks = [sharing.next(0.01, 4) for _ in range(4)]
    assert all(task is not None and task.blocks == 100 for task in tasks)  # a second of work each
    ranges = sorted((task.requests[0].block, task.requests[0].count) for task in tasks if task)
    assert ranges == [(0, 1000), (100, 1000), (200, 1000), (300, 1000)]


def test_tasks_shrink_towards_the_end_so_that_all_end_together() -> None:
    sharing: Sharing[Image] = Sharing(iter([Image(0, [1200])]), total=1, typical=1200, size=SIZE)
    sizes = []
    while (task := sharing.next(1e-3, 4)) is not None:
        sizes.append(task.blocks)
    assert sum(sizes) == 120
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= 120 / 4 / 2
    assert sizes[-1] <= 4  # as long as the driver is busy with one task for each worker


def test_images_far_ahead_of_the_first_are_not_started() -> None:
    images = [Image(index, [10]) for index in range(10_000)]
    sharing: Sharing[Image] = Sharing(iter(images), total=len(images), typical=10, size=SIZE)
    first = sharing.next(1.0, 2)
    assert first is not None
    while (task := sharing.next(1.0, 2)) is not None:
        sharing.done(task.number, [answer(request) for request in task.requests])
    assert sum(image.started for image in images) == 16
    assert sharing.ended() == []
    sharing.done(first.number, [answer(request) for request in first.requests])
    assert sharing.ended() == images[:16]


def test_what_an_image_raises_comes_in_its_turn() -> None:
    images = [Image(0, [10]), Image(1, [10], fails=True), Image(2, [10])]
    sharing: Sharing[Image] = Sharing(iter(images), total=3, typical=10, size=SIZE)
    tasks = [sharing.next(1.0, 1) for _ in range(3)]
    for task in reversed([task for task in tasks if task is not None]):
        assert sharing.ended() == []
        sharing.done(task.number, [answer(request) for request in task.requests])
    assert sharing.ended() == images[:1]
    with pytest.raises(ValueError, match="image 1"):
        sharing.ended()


def shuffled(seed: int) -> Drive:
    """Two workers, of which now one and now the other answers, and now and then none."""

    def drive(engine: Engine, flights: Any, on_votes: Any = None) -> Iterator[list[Flight[Any]]]:
        chance, busy = random.Random(seed), list[Task[Flight[Any]]]()
        sharing: Sharing[Flight[Any]] = Sharing(
            flights, total=4, typical=100, size=engine.noise.block_size, per_pass=engine.blocks_per_pass
        )
        while not sharing.over:
            while len(busy) < 2 and (task := sharing.next(0.05, 2)) is not None:
                busy.append(task)
            task = busy.pop(chance.randrange(len(busy)))
            if chance.random() < 0.2:
                sharing.lost(task.number)
            else:
                sharing.done(task.number, engine.votes_of(task.requests))
            if ended := sharing.ended():
                yield ended

    return drive


@pytest.mark.parametrize("budget", ["fixed", "table", "radius", "anytime"])
def test_every_budget_gives_the_certificates_of_one_process(
    budget: str, tiny_network: Callable[..., MultiHead], small_digits: Splits
) -> None:
    images = select(small_digits.test, SubsetConfig(every=60, first=4))
    config = CertifyConfig.of(0.5, seed=0, n=500, block=20, budget=budget, blocks_per_pass=2)
    smoothed = Smoothed(tiny_network(heads=2), images, config)
    alone, shared = list(smoothed.records(images)), list(smoothed.records(images, drive=shuffled(3)))
    assert [to_line(replace(row, seconds=0.0)) for row in shared] == [
        to_line(replace(row, seconds=0.0)) for row in alone
    ]
