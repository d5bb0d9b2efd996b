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
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

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
MOST_LOSSES: Final = 10  # times that all workers may be lost without a single result
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
        settings: dict[str, Any] = {"address": address or "local"}
        with ExitStack() as stack:
            if address is None:
                # A cluster of this machine lives as long as the command, in a folder of its own.
                stack.enter_context(own_folder())
                settings |= {"num_cpus": self.cores or devices.cores(), "include_dashboard": False}
                settings |= {"object_store_memory": STORE_BYTES}
            stack.callback(ray.shutdown)
            try:
                ray.init(**settings, log_to_driver=False, logging_level="ERROR")
            except Exception as error:  # Ray's are of many kinds: no node here, other versions, another token
                raise WorkerError(
                    f"The Ray cluster at {address or 'this machine'} does not take this process "
                    f"({reason(error)}): run the command on a machine of the cluster "
                    "(`ray start --address=...`), with its Python, its version of Ray and its token "
                    "(RAY_AUTH_TOKEN_PATH)."
                ) from None
            yield ray


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
            amounts = (float(each["Resources"].get(kind, 0)) for kind in ("CPU", "GPU", "memory"))
            found.append(Node(each["NodeManagerHostname"], *amounts))
    return found


def require_room(ray: Ray, need: Need) -> None:
    """Raises WorkerError unless a worker fits somewhere."""
    there = nodes(ray)
    if not any(node.room(need) for node in there):
        raise WorkerError(
            f"A worker needs {need}, and no node has that ({'; '.join(map(str, there)) or 'there is none'}): "
            "add a larger node, or use fewer threads or blocks per pass."
        )


State = Literal["working", "starting", "idle", "refused"]
OnStatus = Callable[[Counter[State]], None]
"""Told how many workers of the pool are in which state."""


class RayWorker:
    """An actor: one process on a node. What a user can mend comes back as a value, because Ray would wrap an
    exception in one of its own."""

    def prepare(self, expected: dict[str, str], function: bytes) -> tuple[str, SmoothheadsError | None]:
        """Takes the function, and returns where the worker is and why it must not work there.

        A worker must not where the machine has other versions than the driver, or where the function's own
        method `prepare` finds that it computes something else.
        """
        where = f"the worker on {socket.gethostname()}, process {os.getpid()}"
        # Other versions may round differently, which would be another function.
        if other := ", ".join(
            f"{name} {got} instead of {expected.get(name)}"
            for name, got in versions().items()
            if got != expected.get(name)
        ):
            error = WorkerError(f"This node has {other}: install the driver's versions on every node.")
            return where, error
        try:
            self._function = pickle.loads(function)
            if hasattr(self._function, "prepare"):
                self._function.prepare()
        except SmoothheadsError as error:
            return where, error
        return where, None

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
    answer: Any
    """Ray's reference to what is awaited from it: that it is prepared, or the result of its task."""
    state: State = "starting"
    where: str = "a worker that was starting"
    task: _Task | None = None
    waited: float = 0.0


class RayPool(Executor):
    """Runs items in the workers of a Ray cluster. The item of a worker that is lost runs again elsewhere.

    There are as many workers as fit, and Ray places them. A pool runs a single function in its life.

    Args:
        ray: The connected module.
        need: What one worker needs, apart from the function itself.
        most: The number of workers at most; None takes as many as fit, also on nodes that join later.
        on_note: Called when a worker is lost or refused.
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
        self._room = 1
        self._losses = 0  # workers that were lost since the last result
        self._looked = -math.inf
        self._longest = 0.0  # seconds that an item took

    @property
    def slots(self) -> int:
        return max(1, min(self._room, self._most or self._room))

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
        awaited = {each.answer: each for each in self._members if each.state in ("starting", "working")}
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
        # Nodes may have joined or gone. Workers that Ray was to start on those that have gone are given up.
        self._looked = now
        self._room = sum(node.room(self._need) for node in nodes(self._ray))
        surplus = max(0, len(self._members) - max(1, self._room))
        for member in [each for each in self._members if each.state == "starting"][:surplus]:
            self._members.remove(member)
            self._ray.kill(member.actor)
        able = [member for member in self._members if member.state != "refused"]
        while len(able) < self.slots and len(self._members) < max(1, self._room):
            # Spread over the nodes, so that few workers are not all on one.
            options = {"max_restarts": 0, "scheduling_strategy": "SPREAD", **self._need.options}
            actor = self._ray.remote(RayWorker).options(**options).remote()
            able.append(_Member(actor, actor.prepare.remote(versions(), self._published)))
            self._members.append(able[-1])
        self._on_status(Counter(member.state for member in self._members))

    def _assign(self) -> None:
        for member in self._members:
            if self._queue and member.state == "idle":
                member.task, member.state, member.waited = self._queue.popleft(), "working", 0.0
                member.answer = member.actor.call.remote(member.task.item)

    def _receive(self, member: _Member) -> Future[Any] | None:
        """Takes what a worker answered and returns the future that ended, if one did."""
        try:
            reply = self._ray.get(member.answer)
        except self._ray.exceptions.RayTaskError as error:
            raise WorkerError(
                f"{member.where} failed ({last_line(error)}): is the same smoothheads installed on every "
                "node?"
            ) from None
        except self._ray.exceptions.RayError as error:
            self._lose(member, str(error).strip().partition("\n")[0])
            return None
        # Before its first task a worker answers that it is prepared, or why its node computes something else.
        if member.task is None:
            member.where, refusal = reply
            member.state = "idle" if refusal is None else "refused"
            if refusal is not None:
                self._on_note(f"{member.where} is refused: {refusal}")
                self._require_workers(refusal)
            return None
        # A result shows that the cluster works, so earlier losses are forgiven.
        task, member.task, member.state, self._losses = member.task, None, "idle", 0
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
        self._on_note(f"{member.where} is lost ({why}); others do its work")
        self._looked = -math.inf  # another one is started at once
        self._losses += 1
        if self._losses >= MOST_LOSSES * self.slots:
            raise WorkerError(
                f"Workers are lost one after another, without a result ({why}): look whether the memory of "
                "the nodes is full, and run the same command again to go on."
            )

    def _require_workers(self, refusal: SmoothheadsError) -> None:
        """Raises WorkerError if all are refused. One that is refused keeps its place, so that Ray starts no
        other there."""
        if len(self._members) >= self._room and all(each.state == "refused" for each in self._members):
            raise WorkerError(
                f"No node computes the same function as this machine ({refusal}): start the command on a "
                "machine like the nodes, with the same versions."
            )


def last_line(error: BaseException) -> str:
    """Returns the last line of Ray's long messages, which says what was raised."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
