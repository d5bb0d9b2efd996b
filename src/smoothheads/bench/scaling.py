"""smoothheads bench scaling: cost against n, heads, image size, blocks per pass and workers."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from smoothheads.bench import contenders, machine, networks
from smoothheads.bench.networks import Bench, Size
from smoothheads.bench.outcome import BenchOutcome, times_faster
from smoothheads.bench.timing import Job, OnRound, interleaved
from smoothheads.certify.config import CertifyConfig
from smoothheads.data.subset import take
from smoothheads.models.cost import cost
from smoothheads.report import plots
from smoothheads.report.table import Cell, Table
from smoothheads.results.intervals import Floats, MedianInterval, interval_of_median
from smoothheads.runs import workers

KNEE: Final = 1.25  # a cost per unit that is so many times the least


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSettings:
    arch: str = "resnet8"
    engine: str = "torch"
    """One of the engines that `bench votes` prints."""
    n: tuple[int, ...] = (100, 300, 1000, 3000, 10_000)
    heads: tuple[int, ...] = (1, 2, 3, 5, 7, 9)
    sides: tuple[int, ...] = (8, 16, 32, 64)
    blocks: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Noise blocks per forward pass, of several images, at the smallest side."""
    workers: tuple[int, ...] = (1, 2, 3, 4)
    samples: int = 500
    """Samples per image against everything but n."""
    images: int = 8
    """Images per measurement against blocks per pass, and against workers for each of them."""
    sigma: float = 0.5
    rounds: int = 7

    @property
    def steps(self) -> int:
        """Four axes warm up in a round of their own."""
        return 5 * self.rounds + 4


@dataclass(frozen=True, slots=True)
class Axis:
    """Units of work per second at each value; a cost that is linear has the same for all."""

    name: str
    unit: str
    rates: Mapping[int, Floats]

    @property
    def best(self) -> int:
        """The cheapest value."""
        return max(self.rates, key=lambda value: float(np.median(self.rates[value])))

    def relative(self, value: int) -> MedianInterval:
        """Cost per unit against the cheapest value, round by round."""
        return interval_of_median(self.rates[self.best] / self.rates[value])

    @property
    def knee(self) -> int | None:
        """The first value behind the cheapest at which a unit costs KNEE times as much."""
        behind = sorted(value for value in self.rates if value > self.best)
        return next((value for value in behind if self.relative(value).low > KNEE), None)


def run(settings: ScalingSettings, on_round: OnRound | None = None) -> BenchOutcome:
    with tempfile.TemporaryDirectory() as folder:
        study = _Study(settings, Path(folder), on_round)
        axes = [
            study.against_n(),
            study.against_heads(),
            study.against_side(),
            study.against_blocks(),
            study.against_workers(),
        ]
    measured_on = machine.describe(1)
    measured = {
        axis.name: {
            "unit": axis.unit,
            "knee": axis.knee,
            "rates": {str(value): rates.tolist() for value, rates in axis.rates.items()},
        }
        for axis in axes
    }
    return BenchOutcome(
        "scaling",
        _table(axes, settings, machine.line(measured_on)),
        {"axes": measured, "settings": asdict(settings), "machine": measured_on},
        _plot(axes),
    )


class _Study:
    """Converted networks are kept in `folder`."""

    def __init__(self, settings: ScalingSettings, folder: Path, on_round: OnRound | None) -> None:
        self.settings, self.folder, self.on_round = settings, folder, on_round
        engine = contenders.settings_of(settings.engine)
        self.config = CertifyConfig.of(settings.sigma, n=settings.samples, **engine)

    def against_n(self) -> Axis:
        bench = self._network()
        jobs = {n: self._certifier(bench, self.config.changed(n=n)) for n in self.settings.n}
        return self._measured("n", "samples/s", jobs)

    def against_heads(self) -> Axis:
        return self._against_arithmetic("heads", {k: self._network(heads=k) for k in self.settings.heads})

    def against_side(self) -> Axis:
        return self._against_arithmetic("image side", {k: self._network(side=k) for k in self.settings.sides})

    def against_blocks(self) -> Axis:
        bench = self._network(side=min(self.settings.sides))
        images = take(bench.images, np.arange(self.settings.images))

        def job(blocks: int) -> Job:
            smoothed = contenders.make(bench, self.config.changed(blocks_per_pass=blocks), self.folder)
            return lambda _: sum(certified.samples for certified in smoothed.records(images))

        jobs = {blocks: job(blocks) for blocks in self.settings.blocks}
        return self._measured("blocks per pass", "samples/s", jobs)

    def against_workers(self) -> Axis:
        """Images per second and worker, once all of them have started."""
        share = self.settings.images
        bench = self._network(images=max(300, share * max(self.settings.workers)))
        contenders.make(bench, self.config, self.folder)  # converts the network, where that is needed
        job = workers.Job(bench.model, bench.info, self.config, bench.images, self.folder)
        rates: dict[int, list[float]] = {count: [] for count in self.settings.workers}
        for _ in range(self.settings.rounds):
            for count in self.settings.workers:
                images = range(share * count)
                done = [time.perf_counter() for _ in workers.certify_images(job, images, count)]
                rates[count].append((len(done) - count) / (done[-1] - done[count - 1]) / count)
            if self.on_round:
                self.on_round()
        return Axis("workers", "images/s each", {count: np.array(speeds) for count, speeds in rates.items()})

    def _against_arithmetic(self, name: str, benches: Mapping[int, Bench]) -> Axis:
        jobs = {
            value: self._certifier(bench, self.config, cost(bench.model, bench.info.shape).flops)
            for value, bench in benches.items()
        }
        return self._measured(name, "op/s", jobs)

    def _network(self, *, heads: int = 5, side: int = 16, images: int = 300) -> Bench:
        return networks.make(Size(self.settings.arch, (3, side, side)), heads, images=images)

    def _certifier(self, bench: Bench, config: CertifyConfig, work: int = 1) -> Job:
        """A certificate a turn; `work` is what a sample counts."""
        smoothed = contenders.make(bench, config, self.folder)

        def certify(turn: int) -> int:
            smoothed.certify_image(bench.image(), turn)
            return work * config.budget.typical_samples

        return certify

    def _measured(self, name: str, unit: str, jobs: Mapping[int, Job]) -> Axis:
        return Axis(name, unit, interleaved(jobs, self.settings.rounds, on_round=self.on_round))


def _table(axes: Sequence[Axis], settings: ScalingSettings, measured_on: str) -> Table:
    rows = [
        (
            Cell(f"{axis.name} {value:,}"),
            Cell(f"{float(np.median(rates)):,.3g} {axis.unit}", float(np.median(rates))),
            times_faster(axis.relative(value)),
        )
        for axis in axes
        for value, rates in axis.rates.items()
    ]
    notes = [
        f"{axis.name}: " + ("no knee" if axis.knee is None else f"knee at {axis.knee:,}") for axis in axes
    ]
    return Table(
        f"Cost of a unit of work, {settings.arch}, engine {settings.engine} (1 everywhere: linear)",
        ("", "rate", "cost per unit, x least"),
        tuple(rows),
        (
            f"Knee: the first value above the cheapest at which a unit surely costs {KNEE} times as much. "
            + "; ".join(notes)
            + ".",
            measured_on,
        ),
    )


def _plot(axes: Sequence[Axis]) -> Figure:
    figure = Figure(figsize=(11.0, 6.0), layout="constrained")
    for place, axis in enumerate(axes):
        _draw(axis, figure.add_subplot(2, -(-len(axes) // 2), place + 1))
    return figure


def _draw(axis: Axis, panel: Axes) -> None:
    values = sorted(axis.rates)
    intervals = [axis.relative(value) for value in values]
    middle = [interval.median for interval in intervals]
    panel.errorbar(
        values, middle, yerr=plots.whiskers(intervals), color=plots.COLOURS[0], marker="o", capsize=3
    )
    panel.axhline(1, color="#888888", linewidth=0.8, linestyle=":")
    if axis.knee is not None:
        panel.axvline(axis.knee, color=plots.COLOURS[1], linewidth=0.9, linestyle="--")
    panel.set_xscale("log")
    panel.set_xticks(values, [f"{value:,}" for value in values])
    panel.minorticks_off()
    panel.set_ylim(0, 1.1 * max(interval.high for interval in intervals))
    panel.set_xlabel(axis.name)
    panel.set_ylabel("cost per unit, x least")
