"""Ray: the cluster (one that runs already, or one of this machine that ends with the command), its nodes, and
a pool of workers on them."""

from __future__ import annotations

import importlib
import math
import os
import pickle
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from smoothheads import device as devices
from smoothheads.errors import ConfigError, MissingExtraError, SmoothheadsError, WorkerError, reason
from smoothheads.provenance import versions
from smoothheads.runs.executors import TICK, Executor, Future, Item, Result, pickled

STORE_BYTES: Final = 80 * 2**20  # of shared memory of a local cluster: Ray would take gigabytes
CONNECT_SECONDS: Final = 10.0  # within which somebody must answer at an address
LONGEST_FOLDER: Final = 40  # characters: Ray puts sockets into it, whose names may have no more than 107
ADDRESS: Final = "RAY_ADDRESS"

LOOK_SECONDS: Final = 2.0  # between two looks at the nodes
FIRST_SECONDS: Final = 900.0  # that a worker may take to load everything and compile the network
SILENCE: Final = 60.0  # seconds that an item may take in any case,
SLOWEST: Final = 20  # or so often the longest one so far
MOST_LOSSES: Final = 10  # times that a node may lose all its workers without a single result
COPIES: Final = 3  # of the network that a worker holds: as it came, the engine's, and what a pass takes

Ray = Any  # the module; nothing of ours depends on its types


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster at an address.

    Args:
        address: host:port of the head, or `auto`. None takes RAY_ADDRESS, else a cluster of this machine.
        cores: The number of cores to use at most; None uses all.
    """

    address: str | None = None
    cores: int | None = None

    @contextmanager
    def connected(self) -> Iterator[Ray]:
        """Yields Ray. An earlier connection stays as it is; a local cluster is gone afterwards."""
        try:
            ray = importlib.import_module("ray")
        except ImportError:
            raise MissingExtraError("ray", "ray") from None
        address = self.address or os.environ.get(ADDRESS)
        if address is not None:
            _require_answer(address)
        # Whoever connected before us also disconnects.
        if ray.is_initialized():
            yield ray
            return
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        # A cluster of this machine lives as long as the command, in a folder of its own.
        if address is None:
            local = {"address": "local", "num_cpus": self.cores or devices.cores(), "num_gpus": None}
            memory = {"include_dashboard": False, "object_store_memory": STORE_BYTES}
            with own_folder():
                try:
                    ray.init(**local, **memory, **quiet)
                    yield ray
                finally:
                    ray.shutdown()
            return
        try:
            ray.init(address=address, **quiet)
        except Exception as error:  # Ray's are of many kinds: no node here, other versions, another token
            raise WorkerError(
                f"The Ray cluster at {address} does not take this process ({reason(error)}): run the command "
                "on a machine of the cluster (`ray start --address=...`), with its Python, its version of "
                "Ray and its token (RAY_AUTH_TOKEN_PATH)."
            ) from None
        try:
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def own_folder() -> Iterator[Path]:
    """Makes a folder for everything that Ray writes: files, sockets, its token, temporary files of workers.

    Ray sends no statistics about clusters that are started inside the block.
    """
    # Only processes that know the token may join or use the cluster.
    usual = tempfile.gettempdir()
    parent = usual if len(usual) <= LONGEST_FOLDER else "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="heads-", dir=parent))
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    changes = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_TMPDIR": str(folder),
        "RAY_worker_niceness": "0",  # as our own processes have it; Ray's are nice to all others
        "TMPDIR": str(folder),
    }
    try:
        with devices.environment(changes):
            _read_token_anew()
            yield folder
    finally:
        _read_token_anew()
        shutil.rmtree(folder, ignore_errors=True)


def _read_token_anew() -> None:
    """Makes Ray read its variables again, which it does only at its import; older versions have no tokens."""
    with suppress(AttributeError):
        core = importlib.import_module("ray._raylet")
        core.Config.initialize("")
        core.AuthenticationTokenLoader.instance().reset_cache()


def _require_answer(address: str) -> None:
    """Raises a WorkerError where nobody listens. Ray would try for a minute, and print many lines."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit():
        raise ConfigError(
            f"{address!r} is no address of a Ray cluster: give host:port as `ray start --head` printed it, "
            "or auto, and run the command on a machine of the cluster."
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise WorkerError(
            f"No Ray cluster answers at {address} ({error}): check the address, or start one with "
            "`ray start --head`."
        ) from None


@dataclass(frozen=True, slots=True)
class Need:
    """The resources that one worker takes of a node."""

    cores: int
    gpus: int
    memory: int
    """Bytes."""

    @property
    def options(self) -> dict[str, float]:
        return {"num_cpus": self.cores, "num_gpus": self.gpus, "memory": self.memory}

    def __str__(self) -> str:
        gpus = f", {self.gpus} GPU" if self.gpus else ""
        return f"{self.cores} core{'s' if self.cores > 1 else ''}{gpus}, {self.memory / 2**20:.0f} MiB"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster and its resources, used or not."""

    key: str
    name: str
    cores: float
    gpus: float
    memory: float

    def room(self, need: Need) -> int:
        """Returns how many such workers fit."""
        pairs = (self.cores, need.cores), (self.gpus, need.gpus), (self.memory, need.memory)
        return int(min(have / take for have, take in pairs if take))

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} GPUs" if self.gpus else ""
        return f"{self.name} with {self.cores:g} cores{gpus}, {self.memory / 2**20:.0f} MiB"


def nodes(ray: Ray) -> list[Node]:
    """Returns the machines that are alive now."""
    found = []
    for each in ray.nodes():
        if each["Alive"]:
            name = f"{each['NodeManagerHostname']} ({each['NodeManagerAddress']})"
            amounts = (float(each["Resources"].get(kind, 0)) for kind in ("CPU", "GPU", "memory"))
            found.append(Node(each["NodeID"], name, *amounts))
    return found


def require_room(ray: Ray, need: Need) -> None:
    """Raises WorkerError unless a worker fits somewhere."""
    there = nodes(ray)
    if not any(node.room(need) for node in there):
        raise WorkerError(
            f"A worker needs {need}, and no node has that ({'; '.join(map(str, there)) or 'there is none'}): "
            "add a larger node, or use fewer threads or blocks per pass."
        )


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """How many workers of a cluster do what at the moment."""

    working: int
    starting: int
    idle: int

    def __str__(self) -> str:
        counts = ((self.working, "working"), (self.starting, "starting"), (self.idle, "idle"))
        return "workers: " + ", ".join(f"{count} {what}" for count, what in counts if count)


OnStatus = Callable[[PoolStatus], None]


class RayWorker:
    """An actor: one process on a node. What a user can mend comes back as a value, because Ray would wrap an
    exception in one of its own."""

    def prepare(self, expected: dict[str, str], function: bytes) -> int | SmoothheadsError:
        """Takes the function and returns the number of the process.

        Refuses where this machine has other versions than the driver, or where the function's own method
        `prepare` finds that it computes something else here.
        """
        # Other versions may round differently, which would be another function.
        if other := ", ".join(
            f"{name} {got} instead of {expected.get(name)}"
            for name, got in versions().items()
            if got != expected.get(name)
        ):
            return WorkerError(f"This node has {other}: install the driver's versions on every node.")
        try:
            self._function = pickle.loads(function)
            if hasattr(self._function, "prepare"):
                self._function.prepare()
        except SmoothheadsError as error:
            return error
        return os.getpid()

    def call(self, item: Any) -> Any:
        try:
            return self._function(item)
        except SmoothheadsError as error:
            return error


class _Task(NamedTuple):
    future: Future[Any]
    item: Any


@dataclass(eq=False)
class _Member:
    """A worker of the pool, as the driver sees it."""

    actor: Any
    node: str
    """Its key."""
    where: str
    answer: Any
    """Ray's reference to what is awaited from it: that it is prepared, or the result of its task."""
    process: int | None = None
    """None until it is prepared."""
    task: _Task | None = None
    waited: float = 0.0

    @property
    def idle(self) -> bool:
        return self.process is not None and self.task is None

    def __str__(self) -> str:
        return f"the worker on {self.where}" + (f", process {self.process}" if self.process else "")


class RayPool(Executor):
    """Runs items in the workers of a Ray cluster. The item of a worker that is lost runs again elsewhere.

    A pool runs a single function in its life.

    Args:
        ray: The connected module.
        need: What one worker needs, apart from the function itself.
        most: The number of workers at most; None takes as many as fit, also on nodes that join later.
        on_note: Called when a worker is lost or a node refused.
        on_status: Called now and then with what the workers do.
    """

    def __init__(
        self,
        ray: Ray,
        need: Need,
        *,
        most: int | None = None,
        on_note: Callable[[str], None] = lambda _: None,
        on_status: OnStatus = lambda _: None,
    ) -> None:
        self._ray, self._need, self._most = ray, need, most
        self._on_note, self._on_status = on_note, on_status
        self._function: Any = None
        self._published: Any = None
        self._queue: deque[_Task] = deque()
        self._members: list[_Member] = []
        self._refused: dict[str, str] = {}
        self._room: dict[str, int] = {}
        self._losses: Counter[str] = Counter()  # workers that a node lost since its last result
        self._looked = -math.inf
        self._staffed = time.monotonic()  # when there was room for a worker last
        self._longest = 0.0  # seconds that an item took

    @property
    def slots(self) -> int:
        return max(1, min(sum(self._room.values()), self._most or sys.maxsize))

    def submit(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        if self._function is None:
            self._publish(function)
        assert self._function is function, "a pool runs one function"
        future: Future[Result] = Future()
        self._queue.append(_Task(future, item))
        return future

    def wait(self, seconds: float) -> list[Future[Any]]:
        # Look for room, give work to whoever is idle, and listen to all who are at work or start.
        self._hire()
        self._assign()
        awaited = {member.answer: member for member in self._members if not member.idle}
        if not awaited:
            time.sleep(min(seconds, TICK))
            return []
        before = time.monotonic()
        first, _ = self._ray.wait(list(awaited), num_returns=1, timeout=min(seconds, TICK))
        answered = self._ray.wait(list(awaited), num_returns=len(awaited), timeout=0)[0] if first else []
        ended = [self._receive(awaited[answer]) for answer in answered]
        # Ctrl-Z stops this process alone, so a long time between two looks says nothing about a worker.
        passed = min(time.monotonic() - before, 2 * TICK)
        for member in (awaited[answer] for answer in awaited if answer not in answered):
            member.waited += passed
            if member.waited > (limit := self._patience(member)):
                self._lose(member, f"no answer within {limit:.0f} s")
        self._assign()
        return [future for future in ended if future is not None]

    def close(self) -> None:
        if self._ray.is_initialized():  # else the workers have ended, and asking would start a cluster
            for member in self._members:
                self._ray.kill(member.actor)
        self._members = []
        self._queue.clear()

    def _publish(self, function: Any) -> None:
        """Puts the function into Ray's store, from where each node fetches it once."""
        # A worker needs memory for the function and for what it makes of it.
        data = pickled(function)
        self._need = replace(self._need, memory=self._need.memory + COPIES * len(data))
        require_room(self._ray, self._need)
        try:
            self._function, self._published = function, self._ray.put(data)
        except self._ray.exceptions.ObjectStoreFullError:
            raise WorkerError(
                f"Ray's object store has no room for {len(data) / 2**20:.0f} MiB: start the nodes with a "
                "larger --object-store-memory."
            ) from None

    def _hire(self) -> None:
        """Starts workers where there is room, now and then and after a loss."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        # How many workers fit on each node, apart from nodes that were refused.
        self._looked = now
        found = [node for node in nodes(self._ray) if node.key not in self._refused]
        self._room = {node.key: node.room(self._need) for node in found}
        # Without any room for long enough, the run ends with the reasons.
        if self._members or any(self._room.values()):
            self._staffed = now
        elif self._refused or now - self._staffed > FIRST_SECONDS:  # until then nodes may come back
            reasons = "; ".join(self._refused.values()) or "none is left"
            raise WorkerError(
                f"No node has workers that live and compute the same function as this machine ({reasons}): "
                "start the command on a machine like the nodes, with the same versions and enough memory."
            )
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        taken = Counter(member.node for member in self._members)
        # The emptiest node first, so that few workers are spread over many nodes.
        for node in sorted(found, key=lambda node: taken[node.key] - self._room[node.key]):
            while taken[node.key] < self._room[node.key] and len(self._members) < self.slots:
                # On this node and nowhere else.
                where = strategies.NodeAffinitySchedulingStrategy(node_id=node.key, soft=False)
                options = {"max_restarts": 0, "scheduling_strategy": where, **self._need.options}
                actor = self._ray.remote(RayWorker).options(**options).remote()
                answer = actor.prepare.remote(versions(), self._published)
                self._members.append(_Member(actor, node.key, node.name, answer))
                taken[node.key] += 1
        self._on_status(
            PoolStatus(
                working=sum(member.task is not None for member in self._members),
                starting=sum(member.process is None for member in self._members),
                idle=sum(member.idle for member in self._members),
            )
        )

    def _assign(self) -> None:
        for member in self._members:
            if self._queue and member.idle:
                member.task, member.waited = self._queue.popleft(), 0.0
                member.answer = member.actor.call.remote(member.task.item)

    def _receive(self, member: _Member) -> Future[Any] | None:
        """Takes what a worker answered and returns the future that ended, if one did."""
        try:
            reply = self._ray.get(member.answer)
        except self._ray.exceptions.RayTaskError as error:
            raise WorkerError(
                f"{member} failed ({last_line(error)}): is the same smoothheads installed on every node?"
            ) from None
        except self._ray.exceptions.RayError as error:
            self._lose(member, str(error).strip().partition("\n")[0])
            return None
        # Before its first task a worker answers that it is prepared, or why its node computes something else.
        task = member.task
        if task is None and isinstance(reply, SmoothheadsError):
            self._members.remove(member)
            self._ray.kill(member.actor)
            self._refuse(member, str(reply))
            return None
        if task is None:
            member.process = reply
            return None
        # A result shows that the node works, so its earlier losses are forgiven.
        self._losses[member.node], member.task = 0, None
        self._longest = max(self._longest, member.waited)
        failed = isinstance(reply, SmoothheadsError)
        task.future.set_exception(reply) if failed else task.future.set_result(reply)
        return task.future

    def _patience(self, member: _Member) -> float:
        """Returns the seconds after which a silent worker counts as lost; Ray notices only those that end."""
        # Loading and compiling take long; after that the longest item so far is the measure.
        if member.task is None:
            return FIRST_SECONDS
        return max(SILENCE, SLOWEST * self._longest) if self._longest else math.inf

    def _lose(self, member: _Member, why: str) -> None:
        """Goes on without a worker; its item is the next to run."""
        self._members.remove(member)
        self._ray.kill(member.actor)
        if member.task is not None:
            # In front, because the rows behind it wait for this one. Votes depend on their keys alone, so an
            # item that runs twice gives the same rows.
            self._queue.appendleft(member.task)
        # A node that loses one worker after another, without a result between, is not worth more of them.
        self._on_note(f"{member} is lost ({why}); others do its work")
        self._losses[member.node] += 1
        if self._losses[member.node] >= MOST_LOSSES * self._room.get(member.node, 1):
            self._refuse(member, f"its workers are lost one after another ({why}); is its memory full?")

    def _refuse(self, member: _Member, why: str) -> None:
        """Starts no more workers on this node."""
        if member.node not in self._refused:
            self._refused[member.node] = f"{member.where}: {why}"
            self._on_note(f"{member} is refused: {why}")
        self._looked = -math.inf


def last_line(error: BaseException) -> str:
    """Returns the last line of Ray's long messages, which says what was raised."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
