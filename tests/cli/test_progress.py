"""Time left: measured from the work itself, by a clock that the tests turn."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from smoothheads.cli import progress as module
from smoothheads.cli.progress import Progress
from smoothheads.errors import duration


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=found.monotonic))
    return found


def test_neither_preparation_nor_an_earlier_run_counts_for_the_speed(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("certify") as progress:
        clock.now = 300.0  # a conversion
        progress.begin(1000, done=900)
        clock.now = 320.0
        progress.update(910)  # 2 seconds each, 90 are left
        clock.now = 321.0
    assert capsys.readouterr().err.splitlines() == [
        "certify: 91%, 3 min 00 s left",
        "certify: done in 5 min 21 s",
    ]


def test_a_second_piece_of_work_has_a_speed_of_its_own(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress("train")
    for done in range(0, 101, 10):
        clock.now += 5.0
        progress.prepare(done, 100)
    progress.begin(400)
    clock.now += 20.0
    progress.update(40, "epoch 1")
    assert capsys.readouterr().err.splitlines()[-1] == "train: 10%, 3 min 00 s left, epoch 1"


def test_rounds_of_a_preparation_are_counted_anew(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("certify")
    for _ in range(2):
        for done in (0, 50):
            clock.now += 10.0
            progress.prepare(done, 100)
    assert (
        capsys.readouterr().err.splitlines()
        == ["certify: 50%, 10 s left, images of the training set, in preparation"] * 2
    )


def test_no_time_is_none_at_all(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("certify", 10_000)
    clock.now = 10.1
    progress.update(9_999)
    clock.now = 30.0
    progress.update(10_000)  # nothing is left to wait for
    assert capsys.readouterr().err.splitlines() == ["certify: 100%, 1 s left"]
    assert [duration(seconds) for seconds in (0.0, 0.4, 99.4, 100, 7_800, 300_000)] == [
        "1 s",
        "1 s",
        "99 s",
        "1 min 40 s",
        "2 h 10 min",
        "3.5 days",
    ]
