"""Pending images get the votes and certificates that they would get alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from smoothheads import checkpoint
from smoothheads.certify.algorithm import Run, Samples, run_budget
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.votes import AT_ONCE, WINDOW, PendingImage, Request, VoteCounter, run_images
from smoothheads.data import Dataset, Splits, SubsetConfig, select
from smoothheads.errors import LedgerError, SoundnessError
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise, make_noise
from smoothheads.runs.certify import certify_run
from smoothheads.smoothed import Smoothed
from smoothheads.training import RunConfig
from smoothheads.types import Counts, Grid, Phase, Votes

T = TypeVar("T")
SIZE = 10
IMAGE = np.zeros((1, 2, 2), dtype=np.uint8)


class Counting(VoteCounter):
    """A counter whose votes name the block: the samples of block b of image i vote for class (i + b) % 7."""

    aggregations: tuple[str, ...] = ("ensemble",)
    classes = 7
    noise: Noise = make_noise("gaussian", 0.5, Grid(16), 0, SIZE)

    def __init__(self, blocks_per_pass: int) -> None:
        self.blocks_per_pass = blocks_per_pass
        self.calls: list[int] = []  # blocks that were asked for

    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        self.calls.append(sum(-(-each.count // SIZE) for each in requests))
        return [self.votes(e.image, e.index, e.phase, e.block, e.count) for e in requests]

    def votes(self, _: Any, index: int, __: Phase, block: int, count: int) -> Votes:
        counts = np.zeros((1, 7), dtype=np.int64)
        for done in range(0, count, SIZE):
            counts[0, (index + block + done // SIZE) % 7] += min(SIZE, count - done)
        return Votes(self.aggregations, counts)


Answer = tuple[int, list[list[int]]]


def asks_for(index: int, counts: Sequence[int]) -> Run[Answer]:
    """One image: its number and the votes of its requests."""
    given = []
    for count in counts:
        given.append((yield Samples(Phase.ESTIMATION, count)).tolist())
    return index, given


def pending(counter: VoteCounter, index: int, run: Run[T]) -> PendingImage[T]:
    return PendingImage(run, IMAGE, index, "ensemble", counter)


def results(counter: VoteCounter, runs: Iterable[Run[T]], on_votes: Any = None) -> list[T]:
    images = (pending(counter, index, run) for index, run in enumerate(runs))
    return [ended.result for group in run_images(counter, images, on_votes) for ended in group]


LENGTHS = [[10], [3, 27, 200], [], [1000, 10], [20] * 30, [10], [5, 5, 5], [90], [10, 10], [4000]]


@pytest.mark.parametrize("blocks_per_pass", [1, 2, 3, 8, 64])
def test_everybody_gets_the_votes_that_were_asked_for_and_comes_out_in_order(blocks_per_pass: int) -> None:
    together = results(Counting(blocks_per_pass), (asks_for(i, c) for i, c in enumerate(LENGTHS * 3)))
    for index, counts in enumerate(LENGTHS * 3):
        alone = run_budget(asks_for(index, counts), Blocks(Counting(1), index))
        assert together[index] == alone


class Blocks:
    """The votes of an engine, each call from the next block on."""

    def __init__(self, engine: Counting, index: int) -> None:
        self.engine, self.index, self.block = engine, index, 0

    def __call__(self, phase: Phase, count: int) -> Counts:
        block, self.block = self.block, self.block + -(-count // SIZE)
        return self.engine.votes(IMAGE, self.index, phase, block, count).for_aggregation()


def test_passes_are_full_until_the_images_run_out() -> None:
    engine = Counting(4)
    results(engine, (asks_for(index, [10] * (1 + index % 5)) for index in range(40)))
    blocks = sum(1 + index % 5 for index in range(40))
    assert sum(engine.calls) == blocks
    assert sum(call % 4 != 0 for call in engine.calls) <= 5  # only while the last ones have not ended


@pytest.mark.parametrize("blocks_per_pass", [1, 4])
def test_a_long_request_is_served_in_pieces_and_progress_is_told(blocks_per_pass: int) -> None:
    engine, told = Counting(blocks_per_pass), list[int]()
    length = 7 + 100 * blocks_per_pass * SIZE
    results(engine, (asks_for(index, [length]) for index in range(3)), told.append)
    assert max(engine.calls) == AT_ONCE * blocks_per_pass
    assert sum(told) == 3 * length
    assert max(told) <= AT_ONCE * blocks_per_pass * SIZE


def test_images_behind_a_long_one_are_not_begun_without_end() -> None:
    begun: list[int] = []

    def run(index: int) -> Run[Answer]:
        begun.append(index)
        return (yield from asks_for(index, [10] * (500 if index == 0 else 1)))

    engine = Counting(2)
    groups = run_images(engine, (pending(engine, index, run(index)) for index in range(100)))
    first = next(groups)
    assert [ended.index for ended in first] == list(range(len(begun)))  # all had ended behind it
    assert len(begun) == WINDOW * 2


def fails(index: int, at: int) -> Run[int]:
    yield from asks_for(index, [10] * (1 if index == at else 5))
    if index == at:
        raise SoundnessError(f"Image {index} lies.")
    return index


def test_an_error_of_an_image_is_raised_when_its_turn_comes() -> None:
    engine, found = Counting(4), list[int]()
    groups = run_images(engine, (pending(engine, index, fails(index, 6)) for index in range(20)))
    with pytest.raises(SoundnessError, match="Image 6"):
        found.extend(ended.result for group in groups for ended in group)
    assert found == [0, 1, 2, 3, 4, 5]


def test_an_error_of_the_engine_ends_everything() -> None:
    class Broken(Counting):
        def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
            if len(self.calls) == 2:
                raise SoundnessError("The logits are not finite: repair the network.")
            return super().votes_of(requests)

    with pytest.raises(SoundnessError, match="logits are not finite"):
        results(Broken(4), (fails(index, -1) for index in range(20)))


def test_ctrl_c_is_heard_at_once() -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        results(Counting(4), (fails(index, -1) for index in range(20)), interrupt)


def test_no_thread_waits_for_votes(tiny_network: Callable[..., MultiHead], small_digits: Splits) -> None:
    subject = Smoothed(
        tiny_network(), small_digits.test.info, seed=0, sigma=0.5, n0=20, n=700, block=20, blocks_per_pass=4
    )
    before = threading.active_count()
    found = subject.certifier.records(small_digits.test)
    assert next(found).index == 0
    assert threading.active_count() == before


def test_what_holds_on_the_way_can_be_read(
    tiny_network: Callable[..., MultiHead], small_digits: Splits
) -> None:
    subject = Smoothed(tiny_network(), small_digits.test.info, settings("anytime", blocks_per_pass=1))
    image = small_digits.test.image(0)
    stream = list(subject.stream(image, 0, n=300, target=0.3))
    assert stream[-1] == subject.certify_image(image, 0).certificate
    assert [certificate.n for certificate in stream] == [20 * (i + 1) for i in range(len(stream))]
    radii = [certificate.radius for certificate in stream]
    assert radii == sorted(radii)


BUDGETS: dict[str, dict[str, Any]] = {
    "fixed": {"n0": 30, "n": 150},
    "table": {"n0": 30, "n": 400, "radii": (0.0, 0.1, 0.2, 0.5)},
    "radius": {"n": 700, "tolerance": 0.3},
    "anytime": {"n0": 30, "n": 300, "target": 0.3},
}


@pytest.fixture
def images(small_digits: Splits) -> Dataset:
    return select(small_digits.test, SubsetConfig(every=7, first=6))


def settings(budget: str, **more: Any) -> CertifyConfig:
    given: dict[str, Any] = {
        "seed": 0,
        "sigma": 0.5,
        "block": 20,
        "blocks_per_pass": 3,
        "budget": budget,
    } | BUDGETS[budget]
    return CertifyConfig(**(given | more))


def without_time(out: Path) -> list[list[str]]:
    """Without the last check too, which ties a row to those before it."""
    lines = (out / "ledger.tsv").read_text().splitlines()[1:]
    return [[word for i, word in enumerate(line.split("\t")[:-1]) if i != 5] for line in lines]


@pytest.mark.parametrize("budget", BUDGETS)
def test_certificates_are_those_of_one_image_at_a_time(
    budget: str, tiny_network: Callable[..., MultiHead], images: Dataset
) -> None:
    subject = Smoothed(tiny_network(heads=2), images.info, settings(budget))
    sizes = set()
    for position, found in enumerate(subject.certifier.records(images)):
        alone = subject.certify_image(images.image(position), found.index, label=found.label)
        assert found.certificate == alone.certificate
        np.testing.assert_array_equal(found.selection.counts, alone.selection.counts)
        np.testing.assert_array_equal(found.votes.counts, alone.votes.counts)
        sizes.add(alone.certificate.n)
    assert len(sizes) > 1 or budget == "fixed"  # images that end early and late are pending together


def test_the_ledger_is_that_of_one_image_at_a_time(
    tiny_network: Callable[..., MultiHead], images: Dataset, tmp_path: Path
) -> None:
    run = RunConfig(model=ModelConfig(arch="resnet8", heads=2))
    checkpoint.save(tmp_path / "network", tiny_network(heads=2), run, images.info)
    ready, config = checkpoint.load(tmp_path / "network"), settings("table")
    whole = without_time(certify_run(ready, images, config, tmp_path / "whole"))
    alone = []
    for position in range(len(images)):
        one = select(images, SubsetConfig(indices=(position,)))
        alone += without_time(certify_run(ready, one, config, tmp_path / str(position)))
    assert whole == alone
    with pytest.raises(LedgerError, match=r"blocks_per_pass = 1 instead of 3"):
        certify_run(ready, images, settings("table", blocks_per_pass=1), tmp_path / "whole")
