"""Certification on a Ray cluster: this process runs the budgets and writes the ledger, workers count votes.

A worker computes ranges of noise blocks of images that are sent to it, nothing else, so that it can be lost
at any moment: what it had under way is asked of another one, and gives the same votes.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.drive import Flight, OnVotes
from smoothheads.certify.engines import Engine, work_of
from smoothheads.certify.sharing import Sharing, Task
from smoothheads.errors import ConfigError, SmoothheadsError, WorkerError
from smoothheads.runs.cluster import Need, Ray, nodes, on_node, require_room
from smoothheads.runs.voter import FunctionFacts, Package, Ready, SentImages, Voter, stored
from smoothheads.runs.workers import FIRST_SIGN, SLOWEST, TICK, OnWork
from smoothheads.smoothed import Smoothed
from smoothheads.types import Pixels, Votes

T = TypeVar("T")

SILENCE: Final = 60.0  # seconds that a task may take in any case
LOOK_SECONDS: Final = 2.0  # between two looks at who is there
RATE_SECONDS: Final = 30.0  # over which the speed is told
MOST_LOSSES: Final = 10  # times that a node may lose all its workers without a single answer
WORKER_BYTES: Final = 300 * 2**20  # of memory that a worker takes at least, besides the network
COPIES: Final = 3  # of the network that it holds: as it came, the engine's, and what a pass takes


@dataclass(frozen=True, slots=True)
class CrewStatus:
    """Of the whole cluster, now."""

    working: int
    starting: int
    idle: int
    per_second: float
    """Samples."""
    images: tuple[int, ...]
    """Indices of those under way at a worker."""

    def __str__(self) -> str:
        parts = [f"{self.per_second:,.0f} samples/s", f"{self.working} workers"]
        if self.images:
            first, last = min(self.images), max(self.images)
            parts[1] += f" on image {first}" if first == last else f" on images {first} to {last}"
        parts += [
            f"{count} {what}" for what, count in (("starting", self.starting), ("idle", self.idle)) if count
        ]
        return ", ".join(parts)


OnStatus = Callable[[CrewStatus], None]


@dataclass(eq=False)
class _Worker:
    """An actor, and what it was asked last: to prepare itself, or a task."""

    actor: Any
    node: str
    """Its key."""
    where: str
    asked: Any
    process: int | None = None
    task: Task[Flight[Any]] | None = None
    seconds: float = 0.0
    """Per block; 0 until it is prepared."""
    waited: float = 0.0

    @property
    def idle(self) -> bool:
        return self.seconds > 0 and self.task is None

    @property
    def limit(self) -> float:
        """Seconds that the answer may take."""
        if self.task is None:
            return FIRST_SIGN
        return max(SILENCE, SLOWEST * self.task.blocks * self.seconds)

    def __str__(self) -> str:
        return f"the worker on {self.where}" + (f", process {self.process}" if self.process else "")


@dataclass(eq=False)
class Crew:
    """The workers of one certification. `most` of them at most; none: as many as fit, also on nodes that join
    later. `on_note` is told who is refused, lost or slow."""

    ray: Ray
    smoothed: Smoothed
    probe: Pixels
    total: int
    """Images that are left."""
    most: int | None = None
    on_note: Callable[[str], None] = lambda _: None
    on_status: OnStatus | None = None
    on_work: OnWork = lambda _: None
    _workers: list[_Worker] = field(default_factory=list)
    _refused: dict[str, str] = field(default_factory=dict)
    _room: dict[str, int] = field(default_factory=dict)
    _lost: Counter[str] = field(default_factory=Counter)
    """Workers of a node since its last answer."""
    _counted: deque[tuple[float, int]] = field(default_factory=deque)
    _looked: float = 0.0

    def drive(
        self, engine: Engine, flights: Iterable[Flight[T]], on_votes: OnVotes | None = None
    ) -> Iterator[list[Flight[T]]]:
        """As `certify.drive.drive`, with the votes of the workers."""
        before = work_of(engine)
        self._facts = FunctionFacts.of(engine, self.probe)
        self._work = before - work_of(engine)  # the probe's is none of the images'
        self._images = SentImages(self.ray)
        data = Package.of(self.smoothed, self.probe).pickled()
        self._need = _need(self.smoothed.config, len(data))
        require_room(self.ray, self._need)
        self._data = stored(self.ray, data)
        self._staffed = time.monotonic()  # when there was room last
        sharing: Sharing[Flight[T]] = Sharing(
            flights,
            total=self.total,
            typical=self.smoothed.budget.typical_samples,
            size=engine.noise.block_size,
            per_pass=engine.blocks_per_pass,
        )
        self._engine, self._sharing, self._on_votes = engine, sharing, on_votes or (lambda _: None)
        try:
            while not sharing.over:
                self._look()
                self._give()
                self._hear()
                if ended := sharing.ended():
                    self._images.drop(flight.index for flight in ended)
                    yield ended
            self.on_work(self._work)
        finally:
            if self.ray.is_initialized():  # else they have ended, and asking would start a cluster
                for worker in self._workers:
                    self.ray.kill(worker.actor)

    def _look(self) -> None:
        """Now and then, and after a loss: workers for the room that there is."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        there = [node for node in nodes(self.ray) if node.key not in self._refused]
        self._room = {node.key: node.room(self._need) for node in there}
        if self._workers or any(self._room.values()):
            self._staffed = now
        elif self._refused or now - self._staffed > FIRST_SIGN:  # else nodes may come back
            raise WorkerError(
                "a node whose workers live and compute the function of this machine",
                "; ".join(self._refused.values()) or "none",
                "start the command on a machine like the nodes, with the same versions and enough memory",
            )
        taken = Counter(worker.node for worker in self._workers)
        most = self.most or sum(self._room.values())
        for node in sorted(there, key=lambda node: taken[node.key] - self._room[node.key]):
            while taken[node.key] < self._room[node.key] and len(self._workers) < most:
                self._hire(node.key, node.name)
                taken[node.key] += 1
        if self.on_status:
            self.on_status(self._status(now))

    def _hire(self, node: str, where: str) -> None:
        kind = self.ray.remote(Voter).options(
            max_restarts=0, scheduling_strategy=on_node(node), **self._need.options
        )
        actor = kind.remote()
        asked = actor.prepare.remote(self._facts.versions, self._data)
        self._workers.append(_Worker(actor, node, where, asked))

    def _give(self) -> None:
        there = sum(worker.seconds > 0 for worker in self._workers)
        for worker in [worker for worker in self._workers if worker.idle]:
            task = self._sharing.next(worker.seconds, there)
            if task is None:
                return
            ranges, images = self._images.ranges(task.requests)
            worker.task, worker.waited = task, 0.0
            worker.asked = worker.actor.votes.remote(ranges, *images)

    def _hear(self) -> None:
        asked = {worker.asked: worker for worker in self._workers if not worker.idle}
        if not asked:
            time.sleep(TICK)
            return
        before = time.monotonic()
        first, _ = self.ray.wait(list(asked), num_returns=1, timeout=TICK)
        answered = self.ray.wait(list(asked), num_returns=len(asked), timeout=0)[0] if first else []
        for reference in answered:
            self._answered(asked[reference])
        # Not the time in which we were stopped ourselves (Ctrl-Z).
        seconds = min(time.monotonic() - before, 2 * TICK)
        for worker in [asked[reference] for reference in asked if reference not in answered]:
            worker.waited += seconds
            if worker.waited > worker.limit:
                self._leave(worker, f"no answer within {worker.limit:.0f} s")

    def _answered(self, worker: _Worker) -> None:
        try:
            reply = self.ray.get(worker.asked)
        except self.ray.exceptions.RayTaskError as error:
            raise WorkerError(
                "workers that compute votes",
                f"{worker}: {_reason(error)}",
                "is the same smoothheads installed on every node?",
            ) from None
        except self.ray.exceptions.RayError as error:
            self._leave(worker, _reason(error))
            return
        task = worker.task
        if task is None:
            self._prepared(worker, reply)
            return
        if isinstance(reply, SmoothheadsError):
            raise reply
        self._lost[worker.node], worker.task = 0, None
        worker.seconds = (worker.seconds + reply.seconds / task.blocks) / 2
        votes = [Votes(self._engine.aggregations, counts) for counts in reply.counts]
        for flight, request in zip(task.flights, task.requests, strict=True):
            flight.seconds += reply.seconds * request.count / task.samples
        self._sharing.done(task.number, votes)
        self._counted.append((time.monotonic(), task.samples))
        self._on_votes(task.samples)
        self._work += reply.work

    def _prepared(self, worker: _Worker, reply: Ready | SmoothheadsError) -> None:
        reason = str(reply) if isinstance(reply, SmoothheadsError) else self._facts.unlike(reply.facts)
        if isinstance(reply, Ready) and reason is None:
            worker.process, worker.seconds = reply.process, reply.seconds
            return
        self._workers.remove(worker)
        self.ray.kill(worker.actor)
        self._refuse(worker, f"{reason}")

    def _leave(self, worker: _Worker, reason: str) -> None:
        """Goes on without a worker; somebody else does what it had under way."""
        self._workers.remove(worker)
        self.ray.kill(worker.actor)
        if worker.task is not None:
            self._sharing.lost(worker.task.number)
        self.on_note(f"{worker} is lost ({reason}); others do its work")
        self._lost[worker.node] += 1
        if self._lost[worker.node] >= MOST_LOSSES * self._room.get(worker.node, 1):
            self._refuse(worker, f"its workers are lost one after another ({reason}); is its memory full?")

    def _refuse(self, worker: _Worker, reason: str) -> None:
        """No workers on this node any more."""
        if worker.node not in self._refused:
            self._refused[worker.node] = f"{worker.where}: {reason}"
            self.on_note(f"{worker} is refused: {reason}")
        self._looked = 0.0

    def _status(self, now: float) -> CrewStatus:
        while self._counted and self._counted[0][0] < now - RATE_SECONDS:
            self._counted.popleft()
        since = now - self._counted[0][0] if len(self._counted) > 1 else 0.0
        samples = sum(count for _, count in self._counted)
        busy = [worker for worker in self._workers if worker.task is not None]
        return CrewStatus(
            working=len(busy),
            starting=sum(worker.seconds == 0 for worker in self._workers),
            idle=sum(worker.idle for worker in self._workers),
            per_second=samples / since if since else 0.0,
            images=tuple({request.index for worker in busy for request in worker.task.requests}),  # type: ignore[union-attr]
        )


def _need(config: CertifyConfig, size: int) -> Need:
    device = config.device
    if device not in ("cpu", "cuda"):
        raise ConfigError("device cpu or cuda with Ray", repr(device), "Ray says which GPU a worker has")
    return Need(config.engine.threads, int(device == "cuda"), WORKER_BYTES + COPIES * size)


def _reason(error: BaseException) -> str:
    """Ray's messages are long; the last line of a traceback says what it was."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if isinstance(getattr(error, "cause", None), Exception) else lines[0]) if lines else "?"
