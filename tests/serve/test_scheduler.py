"""Jobs take turns, wait, stop and fail one by one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from smoothheads.serve.scheduler import BusyError, OutOfTimeError, Scheduler


def run(test: Callable[[Scheduler], Awaitable[None]], at_once: int = 2, queue: int = 1) -> None:
    scheduler = Scheduler(at_once=at_once, queue=queue)

    async def within() -> None:
        async with asyncio.timeout(20):
            await test(scheduler)

    try:
        asyncio.run(within())
    finally:
        scheduler.close()


def test_two_jobs_take_turns() -> None:
    order: list[str] = []
    begin = threading.Event()

    def steps(name: str) -> Iterator[str]:
        begin.wait()
        for _ in range(3):
            order.append(name)
            yield name

    async def test(scheduler: Scheduler) -> None:
        jobs = [scheduler.submit(steps(name), seconds=9) for name in "ab"]
        begin.set()
        assert [[item async for item in job] for job in jobs] == [["a"] * 3, ["b"] * 3]

    run(test)
    assert "".join(order) == "ababab"


def test_fresh_job_does_not_wait_for_many_old_ones() -> None:
    made: list[str] = []

    def steps(name: str, count: int) -> Iterator[str]:
        for _ in range(count):
            made.append(name)
            yield name

    async def test(scheduler: Scheduler) -> None:
        old = [scheduler.submit(steps("old", 10**6), seconds=9) for _ in range(5)]
        while len(made) < 50:
            await asyncio.sleep(0.001)
        assert len([item async for item in scheduler.submit(steps("new", 4), seconds=9)]) == 4
        for job in old:
            job.cancel()

    run(test, at_once=6)
    first, last = made.index("new"), len(made) - made[::-1].index("new")
    assert last - first <= 8  # every other step is its own, though five others want theirs


def test_full_queue_refuses_and_moves_up() -> None:
    stop = threading.Event()

    def steps() -> Iterator[int]:
        while not stop.is_set():
            yield 1

    async def test(scheduler: Scheduler) -> None:
        first, second, third = (scheduler.submit(steps(), seconds=9) for _ in range(3))
        assert (first.position(), third.position()) == (0, 1)
        assert (len(scheduler.active), len(scheduler.waiting)) == (2, 1)
        with pytest.raises(BusyError):
            scheduler.submit(steps(), seconds=9)
        first.cancel()
        while third.position():
            await asyncio.sleep(0.01)
        stop.set()
        assert all([item == 1 async for item in third])
        second.cancel()

    run(test)


def test_cancelled_job_is_closed() -> None:
    closed = threading.Event()

    def steps() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    async def test(scheduler: Scheduler) -> None:
        job = scheduler.submit(steps(), seconds=9)
        async for _ in job:
            job.cancel()
        made = scheduler.steps
        await asyncio.sleep(0.05)
        assert scheduler.steps == made

    run(test)
    assert closed.is_set()


def test_job_out_of_time() -> None:
    def steps() -> Iterator[int]:
        while True:
            yield 1

    async def test(scheduler: Scheduler) -> None:
        with pytest.raises(OutOfTimeError):
            async for _ in scheduler.submit(steps(), seconds=0.05):
                pass

    run(test)


def test_failing_job_fails_alone() -> None:
    def steps(fails: bool) -> Iterator[int]:
        yield 1
        if fails:
            raise ZeroDivisionError
        yield 2

    async def test(scheduler: Scheduler) -> None:
        bad, good = scheduler.submit(steps(True), seconds=9), scheduler.submit(steps(False), seconds=9)
        with pytest.raises(ZeroDivisionError):
            [item async for item in bad]
        assert [item async for item in good] == [1, 2]

    run(test)
