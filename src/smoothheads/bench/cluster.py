"""smoothheads bench cluster: how busy a cluster would be, simulated with the scheduler that Ray runs use.

Costs of images are recorded numbers of samples (benchmarks/record_costs.py): of the `fixed` budget, and of
the `table` budget on two published logs, whose images take from 500 to 100,100 samples.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import count, pairwise
from typing import Any, Final, Literal

import numpy as np
from matplotlib.figure import Figure

from smoothheads.bench.outcome import BenchOutcome
from smoothheads.bench.timing import OnRound
from smoothheads.certify.engines import Request
from smoothheads.certify.sharing import Sharing, Task
from smoothheads.certify.spending import look_schedule
from smoothheads.report import plots
from smoothheads.report.table import Cell, Table, number
from smoothheads.types import Phase, Pixels

BLOCK, N0, N = 100, 100, 100_000
IMAGES: Final = {"imagenet": 500, "cifar10": 10_000}
WAYS: Final = ("whole images", "split", "split, one node lost")
Costs = Sequence[int]
Data = Literal["imagenet", "cifar10"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    data: tuple[Data, ...] = ("imagenet", "cifar10")
    workers: tuple[int, ...] = (8, 64, 512)
    node: int = 8
    """Workers of the node that is lost in the middle of the run."""
    seconds: tuple[float, ...] = (0.1, 0.02)
    """Of a block of 100 samples, on ImageNet and on CIFAR-10."""
    spread: float = 0.1
    """How much a worker's speed differs from another's."""
    latency: float = 0.005
    """Seconds until an answer is there and the next task has arrived."""
    driver: float = 0.001
    """Seconds that the driver is busy with a task."""
    notice: float = 10.0
    """Seconds until the loss of a node is noticed."""
    seed: int = 0

    @property
    def steps(self) -> int:
        return len(list(_cases(self)))


class _Simulated:
    """An image that asks for what it was recorded to take."""

    error: Exception | None = None
    request: Request | None = None

    def __init__(self, asks: Sequence[int]) -> None:
        self._asks, self._blocks = iter(asks), 0

    def start(self) -> None:
        self.take(0, None)

    def take(self, count: int, _: Any) -> None:
        self._blocks += -(-count // BLOCK)
        following = next(self._asks, None)
        ask = None if following is None else Request(_BLANK, 0, Phase.ESTIMATION, self._blocks, following)
        self.request = ask


_BLANK: Pixels = np.zeros((0, 0, 0), dtype=np.uint8)
_Sharing = Sharing[_Simulated]


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    data: str
    budget: str
    way: str
    workers: int
    hours: float
    efficiency: float
    """Work that was needed, as a share of the time that the workers were there."""
    tasks: int


def run(settings: ClusterSettings, on_round: OnRound | None = None) -> BenchOutcome:
    runs = simulate(settings, on_round)
    values = {"settings": asdict(settings), "found": [asdict(run) for run in runs]}
    return BenchOutcome("cluster", _table(runs, settings), values, _plot(runs))


def simulate(settings: ClusterSettings, on_round: OnRound | None = None) -> list[SimulatedRun]:
    runs = []
    for (data, budget, costs), workers, way in _cases(settings):
        seconds = settings.seconds[list(IMAGES).index(data)]
        runs.append(_Cluster(settings, workers, seconds, costs).run(data, budget, way))
        if on_round:
            on_round()
    return runs


def _cases(settings: ClusterSettings) -> Iterator[tuple[tuple[str, str, Costs], int, str]]:
    for case in recorded(settings.seed):
        for workers in settings.workers if case[0] in settings.data else ():
            for way in WAYS if workers > settings.node else WAYS[:2]:
                yield case, workers, way


def recorded(seed: int = 0) -> list[tuple[str, str, Costs]]:
    """Data set, budget and samples of every image. The 500 recorded images stand for all of CIFAR-10's, in
    another order every time."""
    kept: Mapping[str, list[int]] = json.loads(
        resources.files("smoothheads.bench").joinpath("image_costs.json").read_text("utf-8")
    )
    rng = np.random.default_rng(seed)
    cases: list[tuple[str, str, Costs]] = []
    for data, images in IMAGES.items():
        costs = kept[data]
        orders = [costs, *(rng.permutation(costs).tolist() for _ in range(images // len(costs) - 1))]
        cases.append((data, "table", [cost for order in orders for cost in order]))
        cases.append((data, "fixed", [N0 + N] * images))
    return cases


class _Cluster:
    """Events in order: a worker's answer, the loss of a node, and when it is noticed."""

    def __init__(self, settings: ClusterSettings, workers: int, seconds: float, costs: Costs) -> None:
        rng = np.random.default_rng(settings.seed)
        self.settings, self.workers, self.costs = settings, workers, costs
        self.speed: list[float] = (
            seconds * rng.uniform(1 - settings.spread, 1 + settings.spread, workers)
        ).tolist()
        self.work = sum(-(-cost // BLOCK) for cost in costs)
        self.ideal = self.work / sum(1 / each for each in self.speed)
        self.events: list[tuple[float, int, int, Task[_Simulated] | None]] = []
        self.order, self.free_at, self.tasks = count(), 0.0, 0
        self.busy: dict[int, Task[_Simulated]] = {}

    def run(self, data: str, budget: str, way: str) -> SimulatedRun:
        flights = (_Simulated(_asks(cost, budget)) for cost in self.costs)
        typical = N0 + N if budget == "fixed" else N // 10
        sharing: _Sharing = Sharing(
            flights, total=len(self.costs), typical=typical, size=BLOCK, split=way != WAYS[0]
        )
        alive, lost_at = set(range(self.workers)), self.ideal / 2
        if way == WAYS[2]:
            self._at(lost_at, -1, None)
        now, idle = 0.0, set(alive)
        self._give(now, idle, alive, sharing)
        while not sharing.over:
            now, _, worker, task = heapq.heappop(self.events)
            if task is not None and worker in alive:
                sharing.done(task.number, [0] * len(task.requests))
                sharing.ended()
                del self.busy[worker]
                idle.add(worker)
            elif worker == -1:
                alive -= set(range(self.settings.node))
                idle &= alive
                self._at(now + self.settings.notice, -2, None)
            elif worker == -2:
                for gone in sorted(self.busy.keys() - alive):
                    sharing.lost(self.busy.pop(gone).number)
            self._give(now, idle, alive, sharing)
        lost = self.settings.node * max(0.0, now - lost_at) if way == WAYS[2] else 0.0
        share = self.ideal * self.workers / (self.workers * now - lost)
        return SimulatedRun(data, budget, way, self.workers, now / 3600, share, self.tasks)

    def _give(self, now: float, idle: set[int], alive: set[int], sharing: _Sharing) -> None:
        for worker in sorted(idle):
            task = sharing.next(self.speed[worker], len(alive))
            if task is None:
                return
            idle.discard(worker)
            self.busy[worker], self.tasks = task, self.tasks + 1
            self.free_at = max(self.free_at, now) + self.settings.driver
            taken = self.settings.latency + task.blocks * self.speed[worker]
            self._at(self.free_at + taken, worker, task)

    def _at(self, moment: float, worker: int, task: Task[_Simulated] | None) -> None:
        heapq.heappush(self.events, (moment, next(self.order), worker, task))


def _asks(cost: int, budget: str) -> list[int]:
    looks = (0, *look_schedule(N, BLOCK)) if budget == "table" else (0, N)
    return [N0, *(b - a for a, b in pairwise(looks) if b <= cost - N0)]


def _table(runs: Sequence[SimulatedRun], settings: ClusterSettings) -> Table:
    columns = ("", *(f"{workers} workers" for workers in settings.workers))
    rows = []
    for (data, budget, way), points in _cases_of(runs).items():
        shares = {run.workers: number(run.efficiency, ".3f") for run in points}
        name = Cell(f"{data} ({IMAGES[data]:,} images), {budget}, {way}")
        rows.append((name, *(shares.get(workers, Cell("")) for workers in settings.workers)))
    speeds = " and ".join(f"{seconds:g}" for seconds in settings.seconds)
    notes = (
        f"Share of the workers' time that was needed; {speeds} s per block of {BLOCK} samples "
        f"(+-{settings.spread:.0%}), {settings.latency:g} s of latency and {settings.driver:g} s of the "
        "driver per task; workers are there from the start.",
    )
    return Table("Simulated cluster: efficiency", columns, tuple(rows), notes)


def _plot(runs: Sequence[SimulatedRun]) -> Figure:
    figure, axes = plots.new_axes("workers", "efficiency")
    curves = _cases_of([run for run in runs if run.way != WAYS[2]])
    colours = {key: plots.COLOURS[k] for k, key in enumerate(dict.fromkeys(key[:2] for key in curves))}
    for (data, budget, way), points in curves.items():
        axes.plot(
            [run.workers for run in points],
            [run.efficiency for run in points],
            "o-" if way == WAYS[1] else "o--",
            color=colours[data, budget],
            label=f"{data}, {budget}, {way}",
        )
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=8)
    return figure


def _cases_of(runs: Sequence[SimulatedRun]) -> dict[tuple[str, str, str], list[SimulatedRun]]:
    """By data set, budget and way, in their order."""
    cases: dict[tuple[str, str, str], list[SimulatedRun]] = {}
    for run in runs:
        cases.setdefault((run.data, run.budget, run.way), []).append(run)
    return cases
