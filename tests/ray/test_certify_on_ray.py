"""Certification on a real cluster of two nodes: the ledger of one process, whatever happens to workers."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ray.conftest import TwoNodes, certifiers

from smoothheads import checkpoint
from smoothheads.certify.config import CertifyConfig
from smoothheads.checkpoint import Checkpoint
from smoothheads.data import Dataset, Splits, SubsetConfig, select
from smoothheads.errors import SoundnessError, WorkerError
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.provenance import versions
from smoothheads.runs import certify, on_ray
from smoothheads.runs.certify import certify_run
from smoothheads.runs.on_ray import Cluster, Need, RayWorker, State, require_room
from smoothheads.training import RunConfig

CONFIG = CertifyConfig(sigma=0.5, seed=0, n0=20, n=400, block=20)


@pytest.fixture
def ready(tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits) -> Checkpoint:
    run = RunConfig(model=ModelConfig(arch="resnet8", heads=3))
    checkpoint.save(tmp_path / "network", tiny_network(heads=3), run, small_digits.train.info)
    return checkpoint.load(tmp_path / "network")


@pytest.fixture
def images(small_digits: Splits) -> Dataset:
    return select(small_digits.test, SubsetConfig(every=7, first=9))


def without_time(out: Path) -> list[list[str]]:
    lines = (out / "ledger.tsv").read_text().splitlines()
    return [[word for i, word in enumerate(line.split("\t")) if i != 5] for line in lines]


@pytest.mark.parametrize(
    "settings",
    [
        {"budget": "table", "engine": "onnxruntime", "n": 2000},
        {"budget": "radius", "aggregation": "consensus-2", "n": 1000},
    ],
    ids=["table-onnxruntime", "radius-consensus"],
)
def test_the_ledger_is_that_of_one_process(
    cluster: TwoNodes,
    tmp_path: Path,
    ready: Checkpoint,
    images: Dataset,
    settings: dict[str, Any],
) -> None:
    if settings.get("engine") == "onnxruntime":
        pytest.importorskip("onnxruntime")
    config = CONFIG.changed(**settings)
    notes: list[str] = []
    one = certify_run(ready, images, config, tmp_path / "one", on_note=notes.append)
    two = certify_run(
        ready, images, config, tmp_path / "two", workers=None, cluster=Cluster(), on_note=notes.append
    )
    assert len(without_time(two)) == 1 + 9
    assert without_time(two) == without_time(one)


class EnoughError(Exception):
    """Ends a run from inside."""


def same_as_alone(out: Path, ready: Checkpoint, images: Dataset, config: CertifyConfig, folder: Path) -> None:
    """All rows stand in order, and those of 30 images, spread evenly, are what one process gives."""
    rows = [row[:-1] for row in without_time(out)]  # the running checksum is of the rows before, too
    done = images.indices[: len(rows) - 1]
    assert [row[0] for row in rows[1:]] == [str(index) for index in done]
    chosen = np.unique(np.linspace(0, len(done) - 1, 30).astype(np.int64))
    alone = certify_run(ready, images.take(chosen), config, folder)
    assert [row[:-1] for row in without_time(alone)[1:]] == [rows[1 + place] for place in chosen]


def test_workers_and_nodes_come_and_go(
    cluster: TwoNodes,
    tmp_path: Path,
    ready: Checkpoint,
    small_digits: Splits,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One is killed while another one hangs, then a node leaves and another one joins: nothing is lost or
    counted twice."""
    monkeypatch.setattr(on_ray, "SILENCE", 4.0)
    monkeypatch.setattr(on_ray, "SLOWEST", 3)
    config = CONFIG.changed(n=4000)
    notes: list[str] = []

    def workers() -> None:
        first, second = certifiers()
        os.kill(first, signal.SIGKILL)
        os.kill(second, signal.SIGSTOP)

    def nodes() -> None:
        cluster.join(num_cpus=2)
        cluster.leave(cluster.others[0])

    happened, events = 0, (workers, nodes)

    def on_status(status: Counter[State]) -> None:
        """The next event, as soon as the last one was noticed and all workers that can be there are."""
        nonlocal happened
        lost = sum("is lost" in note for note in notes)
        # A busy machine may lose further workers, so that their number alone does not tell.
        silent = any("no answer within" in note for note in notes)
        noticed = (True, lost >= 2 and silent, lost >= 3)[happened]
        ready = status["working"] + status["idle"]
        if noticed and status["starting"] == 0 and ready == (2, 2, 3)[happened]:
            if happened == len(events):
                raise EnoughError
            events[happened]()
            happened += 1

    with pytest.raises(EnoughError):
        certify_run(
            ready,
            small_digits.test,
            config,
            tmp_path / "out",
            workers=None,
            cluster=Cluster(),
            on_note=notes.append,
            on_status=on_status,
        )
    lost = [note for note in notes if "is lost" in note]
    assert any("no answer within" in note for note in lost), lost
    same_as_alone(tmp_path / "out", ready, small_digits.test, config, tmp_path / "alone")


@pytest.mark.ray_faults
def test_twenty_kills_at_random_moments(
    cluster: TwoNodes, tmp_path: Path, ready: Checkpoint, small_digits: Splits
) -> None:
    """Every fifth is a node, the others are workers."""
    config, chance, kills = CONFIG.changed(n=4000), random.Random(7), 0
    over = threading.Event()

    def killer() -> None:
        nonlocal kills
        while kills < 20 and not over.wait(chance.uniform(0, 6)):
            there = certifiers()
            if kills % 5 == 4 and cluster.others:
                cluster.leave(cluster.others[-1])
                kills += 1
            elif there:
                os.kill(chance.choice(there), signal.SIGKILL)
                kills += 1

    def on_status(status: Counter[State]) -> None:
        if not cluster.others:  # Ray wants nodes to be started by the main thread
            cluster.join()
        if kills == 20 and status["starting"] == 0:
            raise EnoughError

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        with pytest.raises(EnoughError):
            certify_run(
                ready,
                small_digits.test,
                config,
                tmp_path / "out",
                workers=None,
                cluster=Cluster(),
                on_status=on_status,
            )
    finally:
        over.set()
        thread.join()
    assert kills == 20
    same_as_alone(tmp_path / "out", ready, small_digits.test, config, tmp_path / "alone")


def test_other_versions_are_refused(ready: Checkpoint, images: Dataset) -> None:
    """In this process, without Ray: nothing of the package is even looked at."""
    here = versions()
    _, reply = RayWorker().prepare(here | {"torch": "1.0"}, b"")
    assert isinstance(reply, WorkerError)
    assert f"has torch {here['torch']} instead of 1.0" in str(reply)


def test_another_function_is_refused_and_named(
    cluster: TwoNodes, tmp_path: Path, ready: Checkpoint, images: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's own probe is of another image than that of the workers, so that their logits differ."""
    true = certify.probe_facts
    monkeypatch.setattr(certify, "probe_facts", lambda counter, image: true(counter, 16 - image))
    notes: list[str] = []
    with pytest.raises(WorkerError, match=r"computes other logits on the first block"):
        certify_run(
            ready, images, CONFIG, tmp_path / "out", cluster=Cluster(), workers=None, on_note=notes.append
        )
    refused = [note for note in notes if " is refused: This node computes other logits" in note]
    assert refused
    assert all(note.startswith(f"the worker on {socket.gethostname()}, process") for note in refused)
    assert len(without_time(tmp_path / "out")) == 1  # the header


def test_what_a_worker_refuses_ends_the_run(
    cluster: TwoNodes, tmp_path: Path, ready: Checkpoint, images: Dataset
) -> None:
    with __import__("torch").no_grad():
        ready.model.heads[0][-1].weight[:] = float("nan")  # type: ignore[index]
    with pytest.raises(SoundnessError, match="finite"):
        certify_run(ready, images, CONFIG, tmp_path / "out", cluster=Cluster(), workers=1)


def test_a_cluster_without_enough_memory_is_named(cluster: TwoNodes) -> None:
    import ray

    with pytest.raises(WorkerError, match=r"needs 1 core, 1048576 MiB, and no node has that \(.* MiB\)"):
        require_room(ray, Need(1, 0, 2**40))
    with pytest.raises(WorkerError, match="1 GPU"):
        require_room(ray, Need(1, 1, 2**20))
