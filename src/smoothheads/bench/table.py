"""smoothheads bench table CHECKPOINT: the certified-accuracy table, by sequential budgets in a fast engine
and by n samples of every image in the plain loop.

Image by image the plain loop and every budget take turns in one process, and several such processes run side
by side, one on each core. Finished images are on the disk at once; the same command again goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from matplotlib.figure import Figure

from smoothheads import device as devices
from smoothheads.bench import contenders, machine, networks
from smoothheads.bench.outcome import FORMAT, claim_folder, times_faster
from smoothheads.bench.plain import MeanOfHeads, sample_noise
from smoothheads.bench.quality import summary
from smoothheads.certify.config import CertifyConfig
from smoothheads.errors import ConfigError, one_of
from smoothheads.files import write_own
from smoothheads.report import plots
from smoothheads.report.table import Cell, Table
from smoothheads.results.intervals import MedianInterval
from smoothheads.smoothed import Smoothed
from smoothheads.types import Certificate, Phase

Row = dict[str, Any]
OnImages = Callable[[int], None]

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


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """All images so far."""

    settings: TableSettings
    name: str
    rows: Sequence[Row]
    machine: Mapping[str, Any]
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

    def table(self) -> Table:
        columns = ["", "s an image", "x plain loop", f"x on {self.settings.workers} cores", "x CPU time"]
        rows = [self._row(budget) for budget in self.settings.budgets]
        known = list(dict.fromkeys(column for _, facts in rows for column in facts))
        plain = self.samples * float(np.mean([row["plain"]["seconds"] for row in self.rows]))
        first = (Cell(PLAIN), Cell(f"{plain:,.1f}", plain), *(Cell("1") for _ in range(3)))
        facts = {"samples per image": Cell(f"{self.samples:,}", self.samples)}
        return Table(
            f"{self.name}: certified-accuracy table of {len(self.rows)} images, n = {self.settings.n}, "
            f"alpha = {self.settings.alpha:g}, sigma = {self.settings.sigma:g}, {self.settings.engine}",
            (*columns, *known),
            tuple(
                (*cells, *(facts.get(column, Cell("")) for column in known))
                for cells, facts in [(first, facts), *rows]
            ),
            (
                f"The plain loop has one core and was timed on {self.settings.plain_samples} samples of each "
                "image, in turns with the budgets; [] is a 95 % bootstrap interval over images.",
                machine.line(dict(self.machine)),
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
            Cell(f"{seconds:,.2f}", seconds),
            times_faster(times),
            times_faster(together),
            times_faster(self.times(budget, "cpu")),
        )
        shown = summary(certificates, labels, self.max_radius)
        return cells, {"samples per image": Cell(f"{mean:,.0f} ± {error:,.0f}", mean)} | shown

    def to_json(self) -> dict[str, Any]:
        budgets = self.settings.budgets if self.rows else ()
        return {
            "bench": f"table-{self.name}",
            "settings": json.loads(json.dumps(asdict(self.settings))),
            "machine": dict(self.machine),
            "times": {budget: self.times(budget)._asdict() for budget in budgets},
            "images": list(self.rows),
        }

    def plot(self) -> Figure:
        figure, axes = plots.new_axes(f"times faster than: {PLAIN}", "")
        plots.draw_bars(axes, {budget: self.times(budget) for budget in self.settings.budgets})
        return figure


def run(
    settings: TableSettings,
    network: Path,
    store: Path,
    out: Path,
    *,
    root: str | None = None,
    on_images: OnImages | None = None,
) -> MeasuredTable:
    """Measures the images that are not in `out` yet. Converted networks are kept in `store`."""
    for budget in settings.budgets:
        if budget not in BUDGETS:
            raise one_of("budget", budget, BUDGETS)
    claim_folder(out)
    bench = networks.trained(network, settings.images, root)
    ceiling = _smoothed(settings, bench, settings.budgets[0], store).max_radius  # converts, too
    measured = MeasuredTable(settings, network.name, [], machine.describe(1), ceiling)
    head = out / f"table-{network.name}.json"
    _require_same(head, measured)
    files = [out / f"table-{network.name}-{worker}.jsonl" for worker in range(settings.workers)]
    left = [i for i in range(len(bench.images)) if i not in {row["position"] for row in _rows(files)}]
    with ProcessPoolExecutor(settings.workers, get_context("spawn")) as pool:
        waiting = {
            pool.submit(_Shard(settings, network, store, root, file).measure, left[place :: settings.workers])
            for place, file in enumerate(files)
            if left[place :: settings.workers]
        }
        while waiting:
            done, waiting = wait(waiting, timeout=2)
            for future in done:
                future.result()
            if on_images:
                on_images(len(_rows(files)))
    return replace(measured, rows=sorted(_rows(files), key=lambda row: int(row["position"])))


@dataclass(frozen=True, slots=True)
class _Shard:
    """One process: the plain loop and every budget take turns, and turn their order, image by image."""

    settings: TableSettings
    network: Path
    store: Path
    root: str | None
    file: Path

    def measure(self, positions: Sequence[int]) -> None:
        settings = self.settings
        bench = networks.trained(self.network, settings.images, self.root)
        smoothed = {budget: _smoothed(settings, bench, budget, self.store) for budget in settings.budgets}
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
            with self.file.open("a", encoding="utf-8") as lines:
                # On a line of its own, whatever became of the last one.
                lines.write("\n" + json.dumps(row))


def _timed(smoothed: Smoothed, bench: networks.Bench, position: int) -> Row:
    wall, cpu = time.perf_counter(), time.process_time()
    index, label = int(bench.images.indices[position]), int(bench.images.labels[position])
    certified = smoothed.certify_image(bench.images.image(position), index, label=label)
    taken = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return taken | {"samples": certified.samples, "certificate": asdict(certified.certificate)}


def _timed_plain(
    settings: TableSettings, bench: networks.Bench, plain: torch.nn.Module, position: int
) -> Row:
    """Seconds of one sample."""
    image = torch.from_numpy(bench.images.image(position)).float() / bench.info.grid.max_value
    n, classes = settings.plain_samples, bench.info.classes
    with devices.threads(1):
        wall, cpu = time.perf_counter(), time.process_time()
        sample_noise(plain, image, n, sigma=settings.sigma, batch=contenders.BATCH, classes=classes)
        return {"seconds": (time.perf_counter() - wall) / n, "cpu": (time.process_time() - cpu) / n}


def _smoothed(settings: TableSettings, bench: networks.Bench, budget: str, store: Path) -> Smoothed:
    config = CertifyConfig.of(settings.sigma, n=settings.n, alpha=settings.alpha, seed=0)  # repeatable
    config = config.changed(**contenders.settings_of(settings.engine), **BUDGETS[budget])
    return contenders.make(bench, config, store)


def _require_same(head: Path, measured: MeasuredTable) -> None:
    """What is in the folder was measured with the same settings, or there is nothing yet."""
    now = measured.to_json()
    if head.is_file():
        stored = json.loads(head.read_text(encoding="utf-8"))
        if stored.get("settings") != now["settings"]:
            raise ConfigError(
                f"the settings of {head}", "others", "use another --out, or repeat the command as it was"
            )
        return
    head.parent.mkdir(parents=True, exist_ok=True)
    write_own(head, json.dumps(now | {"format": FORMAT}, indent=2) + "\n", FORMAT)


def _rows(files: Sequence[Path]) -> list[Row]:
    """What can be read; a line that was torn when a process was killed cannot."""
    rows: dict[int, Row] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
            with suppress(ValueError):
                row: Row = json.loads(line)
                rows[int(row["position"])] = row
    return list(rows.values())
