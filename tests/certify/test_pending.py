"""Runs of budgets get the votes that they ask for, and certificates depend on the image alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from smoothheads import checkpoint
from smoothheads.certify.algorithm import Run, Samples, run_budget
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.votes import AT_ONCE, PendingImage, VoteCounter
from smoothheads.data import Dataset, Splits, SubsetConfig, select
from smoothheads.errors import SoundnessError
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import NOISES, Noise
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
    noise: Noise = NOISES.get("gaussian")().keyed(0.5, Grid(16), 0, SIZE)

    def __init__(self) -> None:
        self.calls: list[int] = []  # samples that were asked for

    def votes(self, _: Any, index: int, __: Phase, block: int, count: int) -> Votes:
        self.calls.append(count)
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


def finish(counter: VoteCounter, index: int, run: Run[T], on_votes: Any = None) -> T:
    pending = PendingImage(run, IMAGE, index, "ensemble", counter)
    for _ in pending.steps(on_votes):
        pass
    assert pending.request is None
    return pending.result


class Blocks:
    """The votes of a counter, each call from the next block on."""

    def __init__(self, counter: Counting, index: int) -> None:
        self.counter, self.index, self.block = counter, index, 0

    def __call__(self, phase: Phase, count: int) -> Counts:
        block, self.block = self.block, self.block + -(-count // SIZE)
        return self.counter.votes(IMAGE, self.index, phase, block, count).for_aggregation()


@pytest.mark.parametrize("counts", [[10], [3, 27, 200], [], [1000, 10], [20] * 30, [5, 5, 5]])
def test_run_gets_the_votes_that_it_asks_for(counts: list[int]) -> None:
    alone = run_budget(asks_for(3, counts), Blocks(Counting(), 3))
    assert finish(Counting(), 3, asks_for(3, counts)) == alone


def test_long_request_is_served_in_parts_and_reported() -> None:
    counter, reported = Counting(), list[int]()
    finish(counter, 0, asks_for(0, [7 + 100 * SIZE]), reported.append)
    assert counter.calls == reported
    assert max(reported) == AT_ONCE * SIZE
    assert sum(reported) == 7 + 100 * SIZE


def test_error_of_a_run_ends_it() -> None:
    def fails() -> Run[int]:
        yield Samples(Phase.ESTIMATION, 10)
        raise SoundnessError("Image 6 lies.")

    with pytest.raises(SoundnessError, match="Image 6"):
        finish(Counting(), 6, fails())


def test_ctrl_c_is_heard_at_once() -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finish(Counting(), 0, asks_for(0, [10]), interrupt)


def test_no_thread_waits_for_votes(tiny_network: Callable[..., MultiHead], small_digits: Splits) -> None:
    subject = Smoothed(tiny_network(), small_digits.test.info, seed=0, sigma=0.5, n0=20, n=700, block=20)
    before = threading.active_count()
    found = subject.certifier.records(small_digits.test)
    assert next(found).index == 0
    assert threading.active_count() == before


def test_what_holds_on_the_way_can_be_read(
    tiny_network: Callable[..., MultiHead], small_digits: Splits
) -> None:
    subject = Smoothed(tiny_network(), small_digits.test.info, settings("anytime"))
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
    assert len(sizes) > 1 or budget == "fixed"


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
