"""The pool of Ray workers on a made-up cluster in this process."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from smoothheads.errors import WorkerError
from smoothheads.runs import on_ray
from smoothheads.runs.on_ray import Need, RayPool, RayWorker


class LostError(Exception):
    """What Ray raises where a worker has died."""


class Reference:
    """An answer that is awaited."""

    def __init__(self, actor: Actor, value: Any) -> None:
        self.actor, self.value = actor, value


class Actor:
    """A worker; `silent` keeps it from answering and `dead` lets its answers fail."""

    def __init__(self) -> None:
        self.worker, self.silent, self.dead, self.killed = RayWorker(), False, False, False
        self.prepare, self.call = (
            SimpleNamespace(remote=lambda *words, do=do: Reference(self, do(*words)))
            for do in (self.worker.prepare, self.worker.call)
        )


class Cluster:
    """The part of Ray that the pool uses."""

    exceptions = SimpleNamespace(RayError=LostError, RayTaskError=(), ObjectStoreFullError=())

    def __init__(self, *cores: int) -> None:
        self.cores, self.actors = list(cores), list[Actor]()
        self.silent = False

    def nodes(self) -> list[dict[str, Any]]:
        facts = {"Alive": True, "NodeManagerHostname": "node"}
        return [facts | {"Resources": {"CPU": each, "memory": 2.0**40}} for each in self.cores]

    def put(self, data: bytes) -> bytes:
        return data

    def is_initialized(self) -> bool:
        return True

    def remote(self, _: type) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self.start))

    def start(self) -> Actor:
        self.actors.append(Actor())
        self.actors[-1].silent = self.silent
        return self.actors[-1]

    def wait(self, awaited: list[Reference], num_returns: int, timeout: float) -> Any:
        ready = [each for each in awaited if not each.actor.silent or each.actor.dead][:num_returns]
        return ready, [each for each in awaited if each not in ready]

    def get(self, answer: Reference) -> Any:
        if answer.actor.dead:
            raise LostError("it died")
        return answer.value

    def kill(self, actor: Actor) -> None:
        actor.killed = True


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "LOOK_SECONDS", 0.0)


def pool(cluster: Cluster, **settings: Any) -> RayPool:
    return RayPool(cluster, Need(1, 0, 2**20), **settings)


def test_map_gives_results_in_order_and_uses_what_fits() -> None:
    cluster = Cluster(2, 1)
    with pool(cluster) as workers:
        assert list(workers.map(math.sqrt, [1, 4, 9, 16])) == [1, 2, 3, 4]
    assert len(cluster.actors) == 3
    assert all(actor.killed for actor in cluster.actors)


def test_most_limits_the_workers() -> None:
    cluster = Cluster(4)
    assert list(pool(cluster, most=2).map(math.sqrt, [1, 4, 9])) == [1, 2, 3]
    assert len(cluster.actors) == 2


def test_the_item_of_a_lost_worker_runs_elsewhere() -> None:
    cluster, notes = Cluster(1), list[str]()
    workers = pool(cluster, on_note=notes.append)
    future = workers.submit(math.sqrt, 4)
    workers.wait(0)  # the worker is prepared and has the item
    cluster.actors[0].dead = True
    while not future.done():
        workers.wait(0)
    assert future.result() == 2
    assert len(cluster.actors) == 2
    assert "is lost (it died); others do its work" in notes[0]


def test_a_silent_worker_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "FIRST_SECONDS", -1.0)
    cluster, notes = Cluster(1), list[str]()
    cluster.silent = True
    workers = pool(cluster, on_note=notes.append)
    workers.submit(math.sqrt, 4)
    workers.wait(0)
    assert cluster.actors[0].killed
    assert "no answer within -1 s" in notes[0]


def test_a_worker_that_starts_is_given_up_with_its_node() -> None:
    cluster, states = Cluster(1, 1), list[Counter[on_ray.State]]()
    cluster.silent = True
    workers = pool(cluster, on_status=states.append)
    workers.submit(math.sqrt, 4)
    workers.wait(0)
    cluster.cores.pop()
    workers.wait(0)
    assert [dict(state) for state in states] == [{"starting": 2}, {"starting": 1}]
    assert [actor.killed for actor in cluster.actors] == [True, False]


def test_nodes_that_join_get_workers() -> None:
    cluster = Cluster(1)
    workers = pool(cluster)
    workers.submit(math.sqrt, 4)
    workers.wait(0)
    cluster.cores.append(2)
    workers.wait(0)
    assert len(cluster.actors) == 3


def test_workers_that_are_lost_without_a_result_end_the_run() -> None:
    cluster = Cluster(1)
    workers = pool(cluster)
    workers.submit(math.sqrt, 4)

    def lose_all() -> None:
        while True:
            workers.wait(0)
            for actor in cluster.actors:
                actor.dead = True

    with pytest.raises(WorkerError, match=r"Workers are lost one after another, .* \(it died\)"):
        lose_all()
    assert len(cluster.actors) == on_ray.MOST_LOSSES


def test_a_refused_worker_keeps_its_place_and_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, notes = Cluster(1, 1), list[str]()
    error = WorkerError("This node is another one.")
    replies = iter([error, None, error])
    monkeypatch.setattr(RayWorker, "_function", math.sqrt, raising=False)
    monkeypatch.setattr(RayWorker, "prepare", lambda *_: ("the worker on node", next(replies)))
    workers = pool(cluster, most=1, on_note=notes.append)
    assert list(workers.map(math.sqrt, [4, 9])) == [2, 3]
    assert notes == ["the worker on node is refused: This node is another one."]
    assert [actor.killed for actor in cluster.actors] == [False, False]


def test_a_cluster_that_refuses_all_workers_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    error = WorkerError("This node is another one.")
    monkeypatch.setattr(RayWorker, "prepare", lambda *_: ("the worker on node", error))
    with pytest.raises(WorkerError, match=r"No node computes the same function .* another one"):
        list(pool(Cluster(1, 1)).map(math.sqrt, [4]))
