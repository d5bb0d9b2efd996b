"""A Ray cluster: one that runs already, or one of this machine that comes and goes with the command."""

from __future__ import annotations

import importlib
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from smoothheads import device as devices
from smoothheads.errors import ConfigError, MissingExtraError, WorkerError, reason

STORE_BYTES: Final = 80 * 2**20  # of shared memory of a local cluster: Ray would take gigabytes
ANSWER_SECONDS: Final = 10.0  # within which somebody must answer at an address
LONGEST_FOLDER: Final = 40  # characters: Ray puts sockets into it, whose names may have no more than 107
ADDRESS: Final = "RAY_ADDRESS"

Ray = Any  # the module; nothing of ours depends on its types


@dataclass(frozen=True, slots=True)
class Cluster:
    """`address` as host:port of the head or `auto`; none: that in RAY_ADDRESS, else a local cluster. `cores`:
    the most that are used; none: all."""

    address: str | None = None
    cores: int | None = None

    @contextmanager
    def connected(self) -> Iterator[Ray]:
        """Ray. What was connected before stays so; a local cluster is gone afterwards, with its folder."""
        ray = imported()
        address = self.address or os.environ.get(ADDRESS)
        if address is not None:
            _require_answer(address)
        if ray.is_initialized():
            yield ray
            return
        if address is None:
            with _local(ray, self.cores or devices.cores()):
                yield ray
            return
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # Ray's are of many kinds: no node here, other versions, another token
            raise WorkerError(
                f"a Ray cluster at {address} that takes this process",
                reason(error),
                "run the command on a machine of the cluster (`ray start --address=...`), with its Python, "
                "its version of Ray and its token (RAY_AUTH_TOKEN_PATH)",
            ) from None
        try:
            yield ray
        finally:
            ray.shutdown()


def imported() -> Ray:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise MissingExtraError("ray", "ray") from None


@contextmanager
def _local(ray: Ray, cores: int) -> Iterator[None]:
    """A cluster of this machine, with everything that it writes in a folder of its own."""
    with own_folder():
        try:
            ray.init(
                address="local",
                num_cpus=cores,
                num_gpus=None,
                include_dashboard=False,
                object_store_memory=STORE_BYTES,
                log_to_driver=False,
                logging_level="ERROR",
            )
            yield
        finally:
            ray.shutdown()


@contextmanager
def own_folder() -> Iterator[Path]:
    """In it Ray started from here keeps its files, sockets and token, and temporary files of its workers; no
    statistics are sent."""
    wanted = tempfile.gettempdir()
    parent = wanted if len(wanted) <= LONGEST_FOLDER else "/tmp"
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
    """Ray keeps what it once read of these variables, from its import on; older versions have no tokens."""
    with suppress(AttributeError):
        core = importlib.import_module("ray._raylet")
        core.Config.initialize("")
        core.AuthenticationTokenLoader.instance().reset_cache()


def _require_answer(address: str) -> None:
    """Ray itself would try for a minute, and say it in many lines."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit():
        raise ConfigError(
            "the address of a Ray cluster as host:port, or auto",
            repr(address),
            "take what `ray start --head` printed; the command itself must run on a machine of the cluster",
        )
    try:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise WorkerError(
            f"a Ray cluster at {address}",
            f"no answer ({error})",
            "check the address, or start one with `ray start --head`",
        ) from None


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster and what it has in all."""

    key: str
    name: str
    cores: float
    gpus: float
    memory: float

    def room(self, need: Need) -> int:
        """How many such workers fit."""
        sizes = [
            have / want
            for have, want in (
                (self.cores, need.cores),
                (self.gpus, need.gpus),
                (self.memory, need.memory),
            )
            if want
        ]
        return int(min(sizes))

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} GPUs" if self.gpus else ""
        return f"{self.name} ({self.cores:g} cores{gpus}, {self.memory / 2**20:.0f} MiB)"


@dataclass(frozen=True, slots=True)
class Need:
    """Of one worker."""

    cores: int
    gpus: int
    memory: int

    @property
    def options(self) -> dict[str, float]:
        return {"num_cpus": self.cores, "num_gpus": self.gpus, "memory": self.memory}

    def __str__(self) -> str:
        gpus = f", {self.gpus} GPU" if self.gpus else ""
        return f"{self.cores} core{'s' if self.cores > 1 else ''}{gpus}, {self.memory / 2**20:.0f} MiB"


def nodes(ray: Ray) -> list[Node]:
    """The machines that are there now."""
    found = []
    for each in ray.nodes():
        if each["Alive"]:
            have = each["Resources"]
            name = f"{each['NodeManagerHostname']} ({each['NodeManagerAddress']})"
            amounts = (float(have.get(kind, 0)) for kind in ("CPU", "GPU", "memory"))
            found.append(Node(each["NodeID"], name, *amounts))
    return found


def require_room(ray: Ray, need: Need) -> None:
    """Raises WorkerError unless a worker fits somewhere."""
    there = nodes(ray)
    if not any(node.room(need) for node in there):
        raise WorkerError(
            f"a node with {need} for a worker",
            "; ".join(map(str, there)) or "no node",
            "add a larger node, or use fewer threads or blocks per pass",
        )


def on_node(key: str) -> Any:
    """There and nowhere else."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node_id=key, soft=False)
