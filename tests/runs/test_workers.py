from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from smoothheads import checkpoint
from smoothheads.certify.config import CertifyConfig
from smoothheads.checkpoint import Checkpoint
from smoothheads.data import Dataset, Splits, SubsetConfig, select
from smoothheads.errors import ConfigError, SoundnessError, WorkerError
from smoothheads.runs import workers
from smoothheads.runs.certify import certify_run
from smoothheads.runs.workers import Job, certify_images, worth
from smoothheads.smoothed import Smoothed
from smoothheads.types import Certified

T = TypeVar("T")
reads_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
CONFIG = CertifyConfig.of(0.5, seed=0, n0=20, n=100, block=20)


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


def test_workers_that_fill_their_passes_write_the_same_ledger(
    tmp_path: Path, ready: Checkpoint, images: Dataset
) -> None:
    config = CONFIG.changed(budget="table", blocks_per_pass=4)  # nine images: groups of 4, 4 and 1
    one = certify_run(ready, images, config, tmp_path / "one")
    two = certify_run(ready, images, config, tmp_path / "two", workers=2)
    assert len(without_time(one)) == 1 + 9
    assert without_time(two) == without_time(one)


def test_an_error_of_a_worker_comes_out_as_it_is(ready: Checkpoint, images: Dataset) -> None:
    last = list(ready.model.heads[1].parameters())[-1]
    last.data.fill_(float("nan"))
    job = Job(ready.model, ready.info, CONFIG, images)
    with pytest.raises(SoundnessError, match="20 noisy samples of image 0 with NaN or infinite logits"):
        list(certify_images(job, range(9), 1))


@reads_proc
def test_a_worker_that_dies_is_reported(ready: Checkpoint, images: Dataset) -> None:
    job = Job(ready.model, ready.info, CONFIG, images)
    found = certify_images(job, list(range(9)) * 20, 1)
    assert next(found).index == 0
    (process,) = children(os.getpid())
    os.kill(process, signal.SIGKILL)
    with pytest.raises(
        WorkerError, match=r"one that was ended by SIGKILL \(exit code -9\); .* memory runs out"
    ):
        list(found)
    assert not children(os.getpid())


@reads_proc
def test_a_worker_that_was_stopped_ends_the_run_with_a_message(
    ready: Checkpoint, images: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds its end of the pipe and no signal but kill moves it: without a limit we would wait forever."""
    monkeypatch.setattr(workers, "TICK", 0.1)
    found = certify_images(Job(ready.model, ready.info, CONFIG, images), list(range(9)) * 20, 1)
    next(found)
    (process,) = children(os.getpid())
    os.kill(process, signal.SIGSTOP)
    monkeypatch.setattr(workers, "SILENCE", 2.0)  # not before: a slow machine may be silent as long
    monkeypatch.setattr(workers, "SLOWEST", 0)
    with pytest.raises(WorkerError, match=f"a sign of life from worker process {process} within 2 s"):
        list(found)
    assert not children(os.getpid())


@reads_proc
def test_a_worker_whose_listener_is_gone_ends_without_a_word(
    ready: Checkpoint, images: Dataset, capfd: pytest.CaptureFixture[str]
) -> None:
    found = certify_images(Job(ready.model, ready.info, CONFIG, images), list(range(9)) * 20, 1)
    next(found)
    found.close()  # type: ignore[attr-defined]
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


@pytest.mark.parametrize(("images", "sizes"), [(0, []), (1, [1]), (9, [5, 4]), (40, [16, 16, 8])])
def test_a_large_pass_leaves_no_worker_without_images(images: int, sizes: list[int]) -> None:
    groups = workers._shared_out(range(images), 16, 2)
    assert [len(group) for group in groups] == sizes
    assert [position for group in groups for position in group] == list(range(images))


def test_a_network_that_cannot_travel_is_refused(ready: Checkpoint, images: Dataset) -> None:
    ready.model.heads[0].register_forward_hook(lambda *_: None)
    with pytest.raises(ConfigError, match="a network that can be sent to workers"):
        list(certify_images(Job(ready.model, ready.info, CONFIG, images), [0, 1], 2))


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
    ("seconds", "images", "threads", "expected"),
    [
        (1000.0, 500, 1, 4),
        (1000.0, 500, 2, 2),
        (1000.0, 500, 8, 1),  # more threads than cores: one process
        (1000.0, 3, 1, 3),  # never more than there are images
        (1000.0, 0, 1, 1),
        (7.0, 500, 1, 1),  # three quarters of it are less than it takes to start
        (9.0, 500, 1, 4),
    ],
)
def test_workers_must_save_more_than_their_start(
    seconds: float, images: int, threads: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    assert worth(seconds, images, threads) == expected


def test_a_long_run_gets_its_workers_and_the_same_ledger(
    ready: Checkpoint, images: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2))
    monkeypatch.setattr(Smoothed, "seconds_per_sample", lambda _: 1.0)
    notes: list[str] = []
    certify_run(ready, images, CONFIG, tmp_path / "one", workers=1)
    certify_run(ready, images, CONFIG, tmp_path / "auto", workers=None, on_note=notes.append)
    assert notes == ["2 workers: one alone would take about 18 min 00 s"]
    assert without_time(tmp_path / "auto") == without_time(tmp_path / "one")
