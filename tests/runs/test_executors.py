from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from smoothheads import checkpoint
from smoothheads.certify.config import CertifyConfig
from smoothheads.checkpoint import Checkpoint
from smoothheads.data import Dataset, Splits, SubsetConfig, select
from smoothheads.errors import ConfigError, WorkerError
from smoothheads.runs import certify
from smoothheads.runs.certify import _batches, certify_run, worker_count
from smoothheads.runs.executors import ProcessExecutor
from smoothheads.types import Certified

T = TypeVar("T")
reads_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
CONFIG = CertifyConfig(sigma=0.5, seed=0, n0=20, n=100, block=20)


@pytest.fixture
def ready(network: Path) -> Checkpoint:
    return checkpoint.load(network)


@pytest.fixture
def images(small_digits: Splits) -> Dataset:
    return select(small_digits.test, SubsetConfig(every=7, first=9))


def without_time(out: Path) -> list[list[str]]:
    lines = (out / "ledger.tsv").read_text().splitlines()
    return [[word for i, word in enumerate(line.split("\t")) if i != 5] for line in lines]


def test_two_workers_write_the_ledger_that_one_goes_on_with(
    tmp_path: Path, ready: Checkpoint, images: Dataset
) -> None:
    def interrupt(_: Certified, done: int, __: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    certify_run(ready, images, CONFIG, tmp_path / "one")
    with pytest.raises(KeyboardInterrupt):
        certify_run(ready, images, CONFIG, tmp_path / "two", workers=2, on_row=interrupt)
    assert len(without_time(tmp_path / "two")) == 1 + 4
    certify_run(ready, images, CONFIG, tmp_path / "two")
    assert without_time(tmp_path / "two") == without_time(tmp_path / "one")


def test_workers_write_the_same_ledger_with_a_budget_that_stops_early(
    tmp_path: Path, ready: Checkpoint, images: Dataset
) -> None:
    config = CONFIG.changed(budget="table")
    one = certify_run(ready, images, config, tmp_path / "one")
    two = certify_run(ready, images, config, tmp_path / "two", workers=2)
    assert len(without_time(one)) == 1 + 9
    assert without_time(two) == without_time(one)


def test_map_keeps_the_order_and_raises_the_error_in_its_turn() -> None:
    with ProcessExecutor(2) as executor:
        results = executor.map(math.sqrt, iter([4, 9, -1, 1]))
        assert [next(results), next(results)] == [2, 3]
        with pytest.raises(ValueError, match="math domain error"):
            next(results)


def test_map_reads_items_as_late_as_possible() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for item in range(1000):
            read.append(item)
            yield item

    with ProcessExecutor(1) as executor:
        assert next(executor.map(abs, items())) == 0
        assert len(read) < 20


@reads_proc
def test_a_worker_that_dies_fails_its_item_alone() -> None:
    with ProcessExecutor(2) as executor:
        futures = [executor.submit(signal.raise_signal, item) for item in (0, signal.SIGKILL, 0, 0)]
        while not all(future.done() for future in futures):
            executor.wait(1)
        assert [future.result() for future in futures if future is not futures[1]] == [None] * 3
        with pytest.raises(WorkerError, match=r"ended by SIGKILL \(exit code -9\), as .* memory runs out"):
            futures[1].result()
    assert not children(os.getpid())


@reads_proc
def test_closing_ends_workers_that_are_busy(capfd: pytest.CaptureFixture[str]) -> None:
    with ProcessExecutor(2) as executor:
        for _ in range(3):
            executor.submit(time.sleep, 1000)
        eventually(lambda: len(children(os.getpid())) == 2)
    assert not children(os.getpid())
    assert capfd.readouterr().err == ""


def children(parent: int) -> list[int]:
    """Process numbers of the workers that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            is_worker = b"spawn_main" in (path / "cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == parent and is_worker:
            found.append(int(path.name))
    return sorted(found)


def test_batches_are_the_images_of_their_positions(images: Dataset) -> None:
    batches = list(_batches(images, [1, 3, 4]))
    assert [batch.indices.tolist() for batch in batches] == images.indices[[1, 3, 4], None].tolist()
    assert (batches[2].image(0) == images.image(4)).all()


def test_a_network_that_cannot_travel_is_refused(ready: Checkpoint, images: Dataset, tmp_path: Path) -> None:
    ready.model.heads[0].register_forward_hook(lambda *_: None)
    with pytest.raises(ConfigError, match="This network cannot be sent to workers"):
        certify_run(ready, images, CONFIG, tmp_path / "out", workers=2)


PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the tests may ignore it
from smoothheads.cli import main
sys.exit(main(sys.argv[1:]))
"""


@reads_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_the_program_ends_its_workers_end(
    tmp_path: Path, ready: Checkpoint, number: signal.Signals
) -> None:
    """kill -9 hits the program alone, Ctrl-C its whole group."""
    options = ["--n", "1000000", "--first", "9", "--workers", "2", "--engine", "torch"]
    options += ["--out", str(tmp_path / "ledger")]
    command = [sys.executable, "-c", PROGRAM, "certify", str(tmp_path / "network"), *options]
    program = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        running = eventually(lambda: children(program.pid) if len(children(program.pid)) == 2 else [])
        eventually(lambda: all(started(worker) for worker in running))
        (os.killpg if number == signal.SIGINT else os.kill)(program.pid, number)
        assert program.wait() == (130 if number == signal.SIGINT else -number)
        eventually(lambda: not any(alive(worker) for worker in running))
        assert program.stderr is not None
        assert "Traceback" not in program.stderr.read()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)  # a test that fails leaves nothing running


def eventually(happened: Callable[[], T]) -> T:
    deadline = time.monotonic() + 120
    while not (found := happened()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def started(process: int) -> bool:
    """Whether it has got as far as loading PyTorch, which takes most of its start."""
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("images", "settings", "workers", "expected"),
    [
        (500, {}, None, 4),
        (500, {"threads": 2}, None, 2),
        (500, {"threads": 8}, None, 1),  # more threads than cores: one process
        (3, {}, None, 3),  # never more than there are images
        (0, {}, None, 1),
        (500, {"device": "cuda"}, None, 1),
        (500, {}, 7, 7),
    ],
)
def test_worker_count_is_one_per_core(
    images: int,
    settings: dict[str, Any],
    workers: int | None,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(certify, "cores", lambda: 4)
    assert worker_count(CONFIG.changed(**settings), workers, images) == expected
