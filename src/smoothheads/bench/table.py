"""smoothheads bench table CHECKPOINT: the certified-accuracy table, by sequential budgets in a fast engine
and by n samples of every image in the plain loop.

Image by image the plain loop and every budget take turns in one process, and several such processes run side
by side, one on each core. Finished images are on the disk at once; the same command again goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from smoothheads import device as devices
from smoothheads.bench import contenders, machine
from smoothheads.bench.networks import Bench, TrainedNetwork
from smoothheads.bench.outcome import FORMAT, BenchOutcome, bars, quality, times_faster
from smoothheads.bench.plain import MeanOfHeads, sample_noise
from smoothheads.bench.timing import OnRound
from smoothheads.certify.config import CertifyConfig
from smoothheads.errors import ConfigError, one_of
from smoothheads.files import write_stamped
from smoothheads.report.table import Cell, Table, number
from smoothheads.results.intervals import MedianInterval
from smoothheads.smoothed import Smoothed
from smoothheads.types import Certificate, Phase

Row = dict[str, Any]

PLAIN: Final = "plain loop, fixed"
BUDGETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "table": {"budget": "table"},
    "table, label-aware": {"budget": "table", "label_aware": True},
    "radius 1 %": {"budget": "radius", "tolerance": 0.01},
    "radius 5 %": {"budget": "radius", "tolerance": 0.05},
}
RESAMPLES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    sigma: float
    images: int = 100
    """Test images, spread evenly."""
    n: int = 100_000
    alpha: float = 0.001
    engine: str = "openvino int8"
    """As `bench votes` names them."""
    budgets: tuple[str, ...] = ("table", "table, label-aware", "radius 1 %")
    """Also known: radius 5 %."""
    plain_samples: int = 500
    """Samples from which the plain loop's time for n0 + n is scaled up: its passes are all alike."""
    workers: int = 2
    """Processes side by side, of one thread each."""

    @property
    def steps(self) -> int:
        return self.images


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    settings: TableSettings
    rows: Sequence[Row]
    max_radius: float

    @property
    def samples(self) -> int:
        """Of every image in the plain loop."""
        return CertifyConfig.of(self.settings.sigma, n=self.settings.n).budget.typical_samples

    def times(self, budget: str, clock: str = "seconds") -> MedianInterval:
        """How many times faster than the plain loop for all images together, and a 95 % bootstrap interval
        over images."""
        plain = self.samples * np.array([row["plain"][clock] for row in self.rows])
        ours = np.array([row[budget][clock] for row in self.rows])
        generator = np.random.default_rng(0)
        drawn = generator.integers(len(ours), size=(RESAMPLES, len(ours)))
        low, high = np.quantile(plain[drawn].sum(1) / ours[drawn].sum(1), [0.025, 0.975])
        return MedianInterval(float(plain.sum() / ours.sum()), float(low), float(high))

    def table(self, name: str, measured_on: str) -> Table:
        columns = ["", "s an image", "x plain loop", f"x on {self.settings.workers} cores", "x CPU time"]
        rows = [self._row(budget) for budget in self.settings.budgets]
        known = list(dict.fromkeys(column for _, facts in rows for column in facts))
        plain = self.samples * float(np.mean([row["plain"]["seconds"] for row in self.rows]))
        first = (Cell(PLAIN), number(plain, ",.1f"), *(Cell("1") for _ in range(3)))
        facts = {"samples per image": number(self.samples, ",d")}
        return Table(
            f"{name}: certified-accuracy table of {len(self.rows)} images, n = {self.settings.n}, "
            f"alpha = {self.settings.alpha:g}, sigma = {self.settings.sigma:g}, {self.settings.engine}",
            (*columns, *known),
            tuple(
                (*cells, *(facts.get(column, Cell("")) for column in known))
                for cells, facts in [(first, facts), *rows]
            ),
            (
                f"The plain loop has one core and was timed on {self.settings.plain_samples} samples of each "
                "image, in turns with the budgets; [] is a 95 % bootstrap interval over images.",
                measured_on,
            ),
        )

    def _row(self, budget: str) -> tuple[tuple[Cell, ...], dict[str, Cell]]:
        times, workers = self.times(budget), self.settings.workers
        together = MedianInterval(times.median * workers, times.low * workers, times.high * workers)
        certificates = [Certificate(**row[budget]["certificate"]) for row in self.rows]
        labels = np.array([row["label"] for row in self.rows])
        samples = [row[budget]["samples"] for row in self.rows]
        mean, error = float(np.mean(samples)), float(np.std(samples) / np.sqrt(len(samples)))
        seconds = float(np.mean([row[budget]["seconds"] for row in self.rows]))
        cells = (
            Cell(f"{self.settings.engine}, {budget}"),
            number(seconds, ",.2f"),
            times_faster(times),
            times_faster(together),
            times_faster(self.times(budget, "cpu")),
        )
        shown = quality(certificates, labels, self.max_radius)
        return cells, {"samples per image": Cell(f"{mean:,.0f} ± {error:,.0f}", mean)} | shown


def run(settings: TableSettings, network: TrainedNetwork, out: Path, on_round: OnRound) -> BenchOutcome:
    """Measures the images that are not in `out` yet; a round is an image."""
    for budget in settings.budgets:
        if budget not in BUDGETS:
            raise one_of("budget", budget, BUDGETS)
    bench = network.bench(settings.images)
    max_radius = _smoothed(settings, bench, settings.budgets[0], network.engines).max_radius  # converts, too
    name, measured_on = f"table-{network.name}", machine.describe(1)
    values = {"settings": json.loads(json.dumps(asdict(settings))), "machine": measured_on}
    _require_same(out / f"{name}.json", {"bench": name, **values, "times": {}, "images": []})
    files = [out / f"{name}-{worker}.jsonl" for worker in range(settings.workers)]
    left = sorted(set(range(len(bench.images))) - _rows(files).keys())
    done = 0
    with ProcessPoolExecutor(settings.workers, get_context("spawn")) as pool:
        waiting = {
            pool.submit(_measure, settings, network, file, left[place :: settings.workers])
            for place, file in enumerate(files)
            if left[place :: settings.workers]
        }
        while waiting:
            ended, waiting = wait(waiting, timeout=2)
            for future in ended:
                future.result()
            before, done = done, len(_rows(files))
            for _ in range(done - before):
                on_round()
    measured = MeasuredTable(settings, [row for _, row in sorted(_rows(files).items())], max_radius)
    times = {budget: measured.times(budget) for budget in settings.budgets}
    table = measured.table(network.name, machine.line(measured_on))
    values |= {"times": {budget: each._asdict() for budget, each in times.items()}, "images": measured.rows}
    return BenchOutcome(name, table, values, bars(table.title, PLAIN, times))


def _measure(settings: TableSettings, network: TrainedNetwork, file: Path, positions: Sequence[int]) -> None:
    """One process: the plain loop and every budget take turns, and turn their order, image by image."""
    bench = network.bench(settings.images)
    smoothed = {budget: _smoothed(settings, bench, budget, network.engines) for budget in settings.budgets}
    plain = MeanOfHeads(bench.model).eval()
    first = bench.images.image(positions[0])
    _timed_plain(settings, bench, plain, positions[0])  # warms up
    for each in smoothed.values():
        each.engine.votes(first, 0, Phase.PILOT, 0, 2 * each.config.block)
    for position in positions:
        row: Row = {"position": position, "index": int(bench.images.indices[position])}
        row["label"] = int(bench.images.labels[position])
        names = ["plain", *smoothed]
        turn = position % len(names)
        for name in names[turn:] + names[:turn]:
            if name == "plain":
                row[name] = _timed_plain(settings, bench, plain, position)
            else:
                row[name] = _timed(smoothed[name], bench, position)
        with file.open("a", encoding="utf-8") as lines:
            lines.write("\n" + json.dumps(row))  # on a line of its own, whatever became of the last one


def _timed(smoothed: Smoothed, bench: Bench, position: int) -> Row:
    wall, cpu = time.perf_counter(), time.process_time()
    index, label = int(bench.images.indices[position]), int(bench.images.labels[position])
    certified = smoothed.certify_image(bench.images.image(position), index, label=label)
    taken = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return taken | {"samples": certified.samples, "certificate": asdict(certified.certificate)}


def _timed_plain(settings: TableSettings, bench: Bench, plain: torch.nn.Module, position: int) -> Row:
    """Seconds of one sample."""
    image = torch.from_numpy(bench.images.image(position)).float() / bench.info.grid.max_value
    n, classes = settings.plain_samples, bench.info.classes
    with devices.threads(1):
        wall, cpu = time.perf_counter(), time.process_time()
        sample_noise(plain, image, n, sigma=settings.sigma, batch=contenders.BATCH, classes=classes)
        return {"seconds": (time.perf_counter() - wall) / n, "cpu": (time.process_time() - cpu) / n}


def _smoothed(settings: TableSettings, bench: Bench, budget: str, store: Path) -> Smoothed:
    config = CertifyConfig.of(settings.sigma, n=settings.n, alpha=settings.alpha, seed=0)  # repeatable
    config = config.changed(**contenders.settings_of(settings.engine), **BUDGETS[budget])
    return contenders.make(bench, config, store)


def _require_same(head: Path, now: dict[str, Any]) -> None:
    """What is in the folder was measured with the same settings, or there is nothing yet."""
    if not head.is_file():
        write_stamped(head, json.dumps(now | {"format": FORMAT}, indent=2) + "\n", FORMAT)
    elif json.loads(head.read_text(encoding="utf-8")).get("settings") != now["settings"]:
        raise ConfigError(
            f"the settings of {head}", "others", "use another --out, or repeat the command as it was"
        )


def _rows(files: Sequence[Path]) -> dict[int, Row]:
    """By position, what can be read; a line that was torn when a process was killed cannot."""
    rows: dict[int, Row] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
            with suppress(ValueError):
                row: Row = json.loads(line)
                rows[int(row["position"])] = row
    return rows
