"""Time of a whole certified-accuracy table: sequential budgets in a fast engine, against n samples of every
image in the plain loop.

    python -m benchmarks.whole_table RUN --images 100

Image by image the plain loop and every budget take turns, so that other work on the machine hits all alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import tyro
from benchmarks.frame import BenchResults, bars, machine_line, times_faster
from benchmarks.plain import MeanOfHeads
from benchmarks.timing import describe_machine

from benchmarks import contenders
from smoothheads.report.table import Cell, Table, number
from smoothheads.results.metrics import Floats, MedianInterval

PLAIN: Final = "plain loop, fixed"
BUDGETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "table": {"budget": "table"},
    "table, label-aware": {"budget": "table", "label_aware": True},
    "radius 1 %": {"budget": "radius", "tolerance": 0.01},
}
RESAMPLES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    run: Annotated[Path, tyro.conf.Positional]
    """Checkpoint or training run."""
    root: str | None = None
    """Folder of the data set, if it has moved since the training."""
    images: int = 100
    """Test images, spread evenly."""
    n: int = 100_000
    alpha: float = 0.001
    engine: str = "openvino int8"
    plain_samples: int = 500
    """Samples from which the time of the plain loop for n0 + n is extrapolated: its passes are all alike."""
    out: Path = Path("bench")


def run(settings: Settings) -> BenchResults:
    """Measures every image with the plain loop and with every budget."""
    bench, config, folder = contenders.trained(settings.run, settings.images, settings.root)
    config = config.changed(n=settings.n, alpha=settings.alpha)
    smoothed = {
        name: contenders.smoothed(bench, config.changed(**changes), settings.engine, folder)
        for name, changes in BUDGETS.items()
    }
    plain = contenders.plain_job(MeanOfHeads(bench.model), bench, config, settings.plain_samples)
    labels, indices = bench.images.labels.tolist(), bench.images.indices.tolist()
    seconds: dict[str, list[float]] = {name: [] for name in (PLAIN, *BUDGETS)}
    samples: dict[str, list[int]] = {name: [] for name in BUDGETS}
    radii: dict[str, list[float]] = {name: [] for name in BUDGETS}
    plain(0)  # warms up

    def timed(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        value = work()
        seconds[name].append(time.perf_counter() - started)
        return value

    for position, index in enumerate(indices):
        names = list(seconds)
        turn = position % len(names)
        for name in names[turn:] + names[:turn]:
            if name == PLAIN:
                timed(name, lambda: plain(0))
                continue
            image, label = bench.images.image(position), labels[position]
            certified = timed(
                name,
                lambda: smoothed[name].certify_image(image, index, label=label),  # noqa: B023
            )
            samples[name].append(certified.samples)
            correct = certified.certificate.prediction == label
            radii[name].append(certified.certificate.radius if correct else 0.0)
    full = config.plan.typical_samples / settings.plain_samples
    times = {name: np.array(each) * (full if name == PLAIN else 1) for name, each in seconds.items()}
    machine = describe_machine(1)
    return tabulate(settings, times, samples, radii, machine)


def tabulate(
    settings: Settings,
    times: Mapping[str, Floats],
    samples: Mapping[str, list[int]],
    radii: Mapping[str, list[float]],
    machine: Mapping[str, Any],
) -> BenchResults:
    rows = [(Cell(PLAIN), number(float(times[PLAIN].mean()), ",.1f"), Cell("1"), Cell(""), Cell(""))]
    ratios: dict[str, MedianInterval] = {}
    for name in BUDGETS:
        # A 95 % bootstrap interval over images: their costs differ by a factor of a hundred.
        generator = np.random.default_rng(0)
        drawn = generator.integers(len(times[name]), size=(RESAMPLES, len(times[name])))
        low, high = np.quantile(times[PLAIN][drawn].sum(1) / times[name][drawn].sum(1), [0.025, 0.975])
        ratios[name] = MedianInterval(float(times[PLAIN].sum() / times[name].sum()), float(low), float(high))
        acr = float(np.mean(radii[name]))
        rows.append(
            (
                Cell(f"{settings.engine}, {name}"),
                number(float(times[name].mean()), ",.2f"),
                times_faster(ratios[name]),
                number(float(np.mean(samples[name])), ",.0f"),
                number(acr, ".4f"),
            )
        )
    title = f"{settings.run.name}: certified-accuracy table of {settings.images} images, n = {settings.n:,}"
    columns = ("", "s an image", "x plain loop", "samples per image", "ACR")
    note = "[] is a 95 % bootstrap interval over images."
    table = Table(title, columns, tuple(rows), (note, machine_line(machine)))
    values = {
        "settings": asdict(settings),
        "machine": machine,
        "seconds": {name: each.tolist() for name, each in times.items()},
        "samples": samples,
        "times": {name: each._asdict() for name, each in ratios.items()},
    }
    return BenchResults(f"table-{settings.run.name}", table, values, bars(title, PLAIN, ratios))


if __name__ == "__main__":
    chosen = tyro.cli(Settings, description=__doc__)
    run(chosen).publish(chosen.out)
