"""Images in flight together get the votes and certificates that they would get alone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothheads import checkpoint
from smoothheads.certify.engines import Engine, Request
from smoothheads.certify.smoothed import Smoothed
from smoothheads.certify.together import AT_ONCE, WINDOW, Ask, together
from smoothheads.config import CertifyConfig, ModelConfig, RunConfig, SubsetConfig
from smoothheads.data import Dataset, Splits, select
from smoothheads.errors import LedgerError, SoundnessError
from smoothheads.models import MultiHead
from smoothheads.noise import Noise, make_noise
from smoothheads.runs.certify import certify_run
from smoothheads.types import Grid, Phase, Votes

SIZE = 10
IMAGE = np.zeros((1, 2, 2), dtype=np.uint8)


class Counting:
    """An engine whose votes name the block: the copies of block b of image i vote for class (i + b) % 7."""

    rules, classes = ("ensemble",), 7
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
        return Votes(self.rules, counts)

    def scores(self, *_: object) -> Any:
        raise NotImplementedError

    def fingerprint(self) -> str:
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        raise NotImplementedError


def asks_for(index: int, counts: Sequence[int], ask: Ask) -> tuple[int, list[list[int]]]:
    """One image: its number and the votes of its requests."""
    found, block = [], 0
    for count in counts:
        found.append(ask(Request(IMAGE, index, Phase.ESTIMATION, block, count)).counts[0].tolist())
        block += -(-count // SIZE)
    return index, found


def alone(engine: Engine) -> Ask:
    return lambda request: engine.votes_of([request])[0]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) == before


LENGTHS = [[10], [3, 27, 200], [], [1000, 10], [20] * 30, [10], [5, 5, 5], [90], [10, 10], [4000]]


@pytest.mark.parametrize("blocks_per_pass", [2, 3, 8, 64])
def test_everybody_gets_the_votes_that_were_asked_for_and_comes_out_in_order(blocks_per_pass: int) -> None:
    works = [partial(asks_for, index, counts) for index, counts in enumerate(LENGTHS * 3)]
    found = [each for group in together(Counting(blocks_per_pass), works) for each in group]
    assert found == [work(alone(Counting(1))) for work in works]


def test_passes_are_full_until_the_images_run_out() -> None:
    engine = Counting(4)
    works = [partial(asks_for, index, [10] * (1 + index % 5)) for index in range(40)]
    for _ in together(engine, works):
        pass
    blocks = sum(1 + index % 5 for index in range(40))
    assert sum(engine.calls) == blocks
    assert sum(call % 4 != 0 for call in engine.calls) <= 5  # only while the last ones have not ended


def test_a_long_request_is_served_in_pieces_and_progress_is_told() -> None:
    engine, told = Counting(4), list[int]()
    works = [partial(asks_for, index, [7 + 100 * 4 * SIZE]) for index in range(3)]
    for _ in together(engine, works, told.append):
        pass
    assert max(engine.calls) == AT_ONCE * 4
    assert sum(told) == 3 * (7 + 100 * 4 * SIZE)
    assert max(told) <= AT_ONCE * 4 * SIZE


def test_images_behind_a_long_one_are_not_begun_without_end() -> None:
    begun: list[int] = []

    def work(index: int, ask: Ask) -> int:
        begun.append(index)
        asks_for(index, [10] * (500 if index == 0 else 1), ask)
        return index

    groups = together(Counting(2), (partial(work, index) for index in range(100)))
    first = next(groups)
    assert first == list(range(len(begun)))  # all that were begun had ended behind it
    assert len(begun) == WINDOW * 2
    groups.close()


def test_never_two_at_a_time() -> None:
    running: list[int] = []

    def work(index: int, ask: Ask) -> None:
        def watched(request: Request) -> Votes:
            assert running.pop() == index
            votes = ask(request)
            running.append(index)
            return votes

        running.append(index)
        asks_for(index, [10, 20, 30], watched)
        assert running.pop() == index
        assert not running

    for _ in together(Counting(5), [partial(work, index) for index in range(20)]):
        assert not running


def fails(index: int, at: int, ask: Ask) -> int:
    asks_for(index, [10] * (1 if index == at else 5), ask)
    if index == at:
        raise SoundnessError("honesty", f"image {index}", "stop")
    return index


def test_an_error_of_an_image_is_raised_when_its_turn_comes() -> None:
    found: list[int] = []
    groups = together(Counting(4), [partial(fails, index, 6) for index in range(20)])
    with pytest.raises(SoundnessError, match="image 6"):
        found.extend(each for group in groups for each in group)
    assert found == [0, 1, 2, 3, 4, 5]


def test_an_error_of_the_engine_ends_everything() -> None:
    class Broken(Counting):
        def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
            if len(self.calls) == 2:
                raise SoundnessError("finite logits", "others", "repair the network")
            return super().votes_of(requests)

    with pytest.raises(SoundnessError, match="finite logits"):
        list(together(Broken(4), [partial(fails, index, -1) for index in range(20)]))


@pytest.mark.parametrize("when", ["while the network runs", "between two images"])
def test_ctrl_c_leaves_no_thread(when: str) -> None:
    def interrupt(_: int) -> None:
        if when == "while the network runs":
            raise KeyboardInterrupt

    def run() -> None:
        for _ in together(Counting(4), [partial(fails, index, -1) for index in range(20)], interrupt):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()


def test_a_signal_while_an_image_decides_leaves_no_thread() -> None:
    """The caller waits for the image then, and must hear it."""

    def work(index: int, ask: Ask) -> int:
        asks_for(index, [10], ask)
        if index == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return asks_for(index, [10], ask)[0]

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            list(together(Counting(4), [partial(work, index) for index in range(20)]))
    finally:
        signal.signal(signal.SIGINT, before)


def test_who_looks_at_the_first_only_leaves_no_thread(
    tiny_network: Callable[..., MultiHead], small_digits: Splits
) -> None:
    subject = Smoothed(
        tiny_network(), small_digits.test.info, sigma=0.5, n0=20, n=700, block=20, blocks_per_pass=4
    )
    found = subject.certify(small_digits.test)
    assert next(found).index == 0
    assert threading.active_count() > 1
    del found


BUDGETS: dict[str, dict[str, Any]] = {
    "fixed": {"n": 150},
    "table": {"n": 400, "radii": (0.0, 0.1, 0.2, 0.5)},
    "radius": {"n": 700, "price": 2000.0},
    "anytime": {"n": 300, "target": 0.3},
}


@pytest.fixture
def images(small_digits: Splits) -> Dataset:
    return select(small_digits.test, SubsetConfig(every=7, first=6))


def settings(budget: str, **more: Any) -> CertifyConfig:
    given: dict[str, Any] = {
        "sigma": 0.5,
        "n0": 30,
        "block": 20,
        "blocks_per_pass": 3,
        "budget": budget,
    } | BUDGETS[budget]
    return CertifyConfig(**(given | more))


def without_time(out: Path) -> list[list[str]]:
    lines = (out / "ledger.tsv").read_text().splitlines()[1:]
    return [[word for i, word in enumerate(line.split("\t")) if i != 5] for line in lines]


@pytest.mark.parametrize("budget", BUDGETS)
def test_certificates_are_those_of_one_image_at_a_time(
    budget: str, tiny_network: Callable[..., MultiHead], images: Dataset
) -> None:
    subject = Smoothed(tiny_network(heads=2), images.info, settings(budget))
    sizes = set()
    for position, found in enumerate(subject.certify(images)):
        certificate, sampler = subject.certify_image(images.image(position), found.index, label=found.label)
        assert found.certificate == certificate
        selection = sampler.table(Phase.SELECTION) + sampler.table(Phase.PILOT)
        np.testing.assert_array_equal(found.selection.counts, selection.counts)
        np.testing.assert_array_equal(found.votes.counts, sampler.table(Phase.ESTIMATION).counts)
        sizes.add(certificate.n)
    assert len(sizes) > 1 or budget == "fixed"  # images that end early and late are in flight together


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
    with pytest.raises(LedgerError, match=r"certify\.blocks_per_pass 3.*got certify\.blocks_per_pass 1"):
        certify_run(ready, images, settings("table", blocks_per_pass=1), tmp_path / "whole")
