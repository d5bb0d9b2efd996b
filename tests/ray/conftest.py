"""A real cluster of two nodes on this machine, with everything that it writes in a folder of its own."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smoothheads.runs.on_ray import STORE_BYTES, own_folder

NODE = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long ones are run when they are asked for."""
    if "ray_faults" not in config.option.markexpr:
        for item in items:
            if item.get_closest_marker("ray_faults"):
                item.add_marker(pytest.mark.skip(reason="run by `make ray-faults`"))


class TwoNodes:
    """Nodes with a core each; one can leave, others can join."""

    def __init__(self) -> None:
        utils = importlib.import_module("ray.cluster_utils")
        self._cluster: Any = utils.Cluster(initialize_head=True, head_node_args=NODE)
        self.address = str(self._cluster.address)
        self.others: list[Any] = []
        self.join()

    def join(self, **arguments: Any) -> None:
        self.others.append(self._cluster.add_node(**(NODE | arguments)))

    def leave(self, node: Any) -> None:
        """All at once, as a machine without power."""
        self._cluster.remove_node(node, allow_graceful=False)
        self.others.remove(node)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="session")
def cluster() -> Iterator[TwoNodes]:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with own_folder():
        import ray

        nodes = TwoNodes()
        try:
            ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


def descendants(process: int) -> dict[int, str]:
    """Command lines of all processes below one of ours."""
    parents, commands = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                commands[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, UnicodeDecodeError):
                continue
            parents[int(entry.name)] = int(status[1]) if status[0] != "Z" else 0
    found: dict[int, str] = {}
    rest = [process]
    while rest:
        above = rest.pop()
        below = [each for each, parent in parents.items() if parent == above]
        found |= {each: commands[each] for each in below}
        rest += below
    return found


def certifiers() -> list[int]:
    """Processes of Ray's below this one that certify images."""
    return [
        each for each, command in descendants(os.getpid()).items() if command.startswith("ray::RayWorker")
    ]
