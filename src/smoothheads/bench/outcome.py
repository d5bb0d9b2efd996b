"""What a benchmark found: a table and a plot for people, and JSON with every round."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from smoothheads.bench.machine import line
from smoothheads.bench.timing import ratio
from smoothheads.files import STAMP, has_stamp, reserve, write_stamped
from smoothheads.report import plots
from smoothheads.report.table import Cell, Table, number, to_markdown
from smoothheads.results.intervals import Floats, MedianInterval, interval_of_median
from smoothheads.results.metrics import average_certified_radius, certified_accuracy, default_radii
from smoothheads.types import Certificate

FORMAT = "smoothheads-bench/1"
RADII = 4  # of a table that shows certified accuracy
Ints = NDArray[np.int64]
Facts = Mapping[str, Mapping[str, Cell]]
"""Further columns of a table, by contender and column."""


@dataclass(frozen=True, slots=True)
class BenchOutcome:
    name: str
    """Of the files that it is written to."""
    table: Table
    values: Mapping[str, Any]
    """Everything measured, for JSON."""
    figure: Figure

    def to_json(self) -> dict[str, Any]:
        return {"bench": self.name, **self.values}

    def write(self, folder: Path) -> list[Path]:
        """`name`.json, `name`.md with the table, `name`.svg; each replaced as a whole."""
        claim_folder(folder)
        data, text, picture = (folder / f"{self.name}.{kind}" for kind in ("json", "md", "svg"))
        values = self.to_json() | {"format": FORMAT}
        write_stamped(data, json.dumps(values, indent=2, sort_keys=True) + "\n", FORMAT)
        write_stamped(text, f"{to_markdown(self.table)}\n\n<!-- {STAMP} -->\n")
        plots.save(self.figure, picture)
        return [data, text, picture]


def claim_folder(folder: Path) -> None:
    """Raises StorageError unless results may be written there; worth asking before a long run."""
    reserve(folder, lambda there: any(has_stamp(path, FORMAT) for path in there.glob("*.json")))


def compared(
    name: str,
    title: str,
    *,
    unit: str,
    baselines: tuple[str, ...],
    rates: Mapping[str, Floats],
    machine: Mapping[str, Any],
    settings: Mapping[str, Any],
    facts: Facts,
    notes: tuple[str, ...],
) -> BenchOutcome:
    """Contenders that took turns, as ratios to the baselines, the main one first; `rates` are in `unit`, one
    for every round."""
    further = list(dict.fromkeys(column for columns in facts.values() for column in columns))
    rows, contenders, main = [], {}, {}
    for contender, each in rates.items():
        speed, known = interval_of_median(each), facts.get(contender, {})
        ratios = {baseline: ratio(each, rates[baseline]) for baseline in baselines}
        main[contender] = ratios[baselines[0]]
        rows.append(
            (
                Cell(contender),
                Cell(_three_digits(speed.median), speed.median),
                *map(times_faster, ratios.values()),
                *(known.get(column, Cell("")) for column in further),
            )
        )
        contenders[contender] = {
            "rates": each.tolist(),
            "rate": speed._asdict(),
            "ratios": {baseline: interval._asdict() for baseline, interval in ratios.items()},
            "facts": {column: cell.value for column, cell in known.items()},
        }
    columns = ("", unit, *(f"x {baseline}" for baseline in baselines), *further)
    how = f"Medians of {len(rates[baselines[0]])} interleaved rounds, with 95 % intervals."
    values = {
        "title": title,
        "unit": unit,
        "contenders": contenders,
        "settings": settings,
        "machine": machine,
        "notes": list(notes),
    }
    table = Table(title, columns, tuple(rows), (how, *notes, line(machine)))
    return BenchOutcome(name, table, values, bars(title, baselines[0], main))


def bars(title: str, baseline: str, ratios: Mapping[str, MedianInterval]) -> Figure:
    """How many times faster each contender is than the baseline."""
    figure, axes = plots.new_axes(f"times faster than: {baseline}", "")
    intervals = list(ratios.values())[::-1]  # the first on top
    middle = [interval.median for interval in intervals]
    look: dict[str, Any] = {"color": plots.COLOURS[0], "height": 0.6, "ecolor": "#222222", "capsize": 3}
    axes.barh(list(ratios)[::-1], middle, xerr=plots.whiskers(intervals), **look)
    for place, interval in enumerate(intervals):
        axes.text(interval.high, place, f"  {interval.median:.2f}", va="center", fontsize=9)
    axes.set_xlim(0, 1.15 * max(interval.high for interval in intervals))
    axes.set_title(title, fontsize=10)
    return figure


def quality(certificates: Sequence[Certificate], labels: Ints, max_radius: float) -> dict[str, Cell]:
    """What certificates are worth: the ACR, and certified accuracy at the first of the usual radii."""
    correct = np.array([each.prediction for each in certificates]) == labels
    radius = np.array([each.radius for each in certificates])
    radii = default_radii(max_radius)[:RADII]
    acr = average_certified_radius(correct, radius)
    shares = certified_accuracy(correct, radius, radii).tolist()
    cells = {f"CA {r:g}": number(share, ".0%") for r, share in zip(radii, shares, strict=True)}
    return {"ACR": number(acr, ".4f")} | cells


def times_faster(interval: MedianInterval) -> Cell:
    median, low, high = interval
    return Cell(f"{median:.2f} [{low:.2f}, {high:.2f}]", (median, low, high))


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
