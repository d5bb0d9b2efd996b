"""Results of a benchmark: a table of ratios between contenders that took turns, and files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import ratio
from matplotlib.figure import Figure

from smoothheads.files import STAMP, has_stamp, reserve, write_stamped
from smoothheads.report import plots
from smoothheads.report.table import Cell, Table, to_markdown, to_text
from smoothheads.results.metrics import Floats, MedianInterval, interval_of_median

FORMAT = "smoothheads-bench/1"
Facts = Mapping[str, Mapping[str, Cell]]
"""Further columns of a table, by contender and column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Settings of every benchmark whose contenders take turns."""

    rounds: int = 9
    threads: int = 1
    out: Path = Path("bench")
    """Folder for JSON, table and plot."""


@dataclass(frozen=True, slots=True)
class BenchResults:
    name: str
    """Name of the files, without their endings."""
    table: Table
    values: Mapping[str, Any]
    """Everything that was measured, for JSON."""
    figure: Figure

    def publish(self, folder: Path) -> list[Path]:
        """Writes `name`.json, `name`.md and `name`.svg, each replaced as a whole, and prints the table."""
        reserve(folder, lambda path: any(has_stamp(file, FORMAT) for file in path.glob("*.json")))
        data, text, plot = (folder / f"{self.name}.{kind}" for kind in ("json", "md", "svg"))
        values = {"bench": self.name, **self.values, "format": FORMAT}
        write_stamped(data, json.dumps(values, indent=2, sort_keys=True, default=str) + "\n", FORMAT)
        write_stamped(text, f"{to_markdown(self.table)}\n\n<!-- {STAMP} -->\n")
        plots.save(self.figure, plot)
        print(to_text(self.table))
        return [data, text, plot]


def compared(
    name: str,
    title: str,
    *,
    unit: str,
    baselines: tuple[str, ...],
    rates: Mapping[str, Floats],
    machine: Mapping[str, Any],
    settings: Mapping[str, Any],
    facts: Facts | None = None,
    notes: tuple[str, ...] = (),
) -> BenchResults:
    """Returns contenders that took turns as ratios to the baselines.

    Args:
        name: Name of the files that the results are written to.
        title: Title of the table and the plot.
        unit: Unit of the rates, such as votes/s.
        baselines: Contenders that all are compared with, the main one first.
        rates: Work per second of every contender in every round.
        machine: Hardware and versions, from `describe_machine`.
        settings: Settings of the benchmark, for JSON.
        facts: Further columns, by contender and column.
        notes: Sentences below the table.
    """
    facts = facts or {}
    further = list(dict.fromkeys(column for columns in facts.values() for column in columns))
    rows, contenders, main = [], {}, {}
    for contender, each in rates.items():
        speed, own = interval_of_median(each), facts.get(contender, {})
        ratios = {baseline: ratio(each, rates[baseline]) for baseline in baselines}
        main[contender] = ratios[baselines[0]]
        shown = f"{speed.median:,.0f}" if speed.median >= 100 else f"{speed.median:.3g}"
        more = (own.get(column, Cell("")) for column in further)
        rows.append((Cell(contender), Cell(shown, speed.median), *map(times_faster, ratios.values()), *more))
        contenders[contender] = {
            "rates": each.tolist(),
            "rate": speed._asdict(),
            "ratios": {baseline: interval._asdict() for baseline, interval in ratios.items()},
            "facts": {column: cell.value for column, cell in own.items()},
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
    table = Table(title, columns, tuple(rows), (how, *notes, machine_line(machine)))
    return BenchResults(name, table, values, bars(title, baselines[0], main))


def bars(title: str, baseline: str, ratios: Mapping[str, MedianInterval]) -> Figure:
    """Draws how many times faster each contender is than the baseline."""
    figure, axes = plots.new_axes(f"times faster than: {baseline}", "")
    intervals = list(ratios.values())[::-1]  # so that the first one is on top
    middle = [interval.median for interval in intervals]
    look: dict[str, Any] = {"color": plots.COLOURS[0], "height": 0.6, "ecolor": "#222222", "capsize": 3}
    # How far each interval reaches below and above its median.
    reach = [[middle - low for middle, low, _ in intervals], [high - middle for middle, _, high in intervals]]
    axes.barh(list(ratios)[::-1], middle, xerr=reach, **look)
    for place, interval in enumerate(intervals):
        axes.text(interval.high, place, f"  {interval.median:.2f}", va="center", fontsize=9)
    axes.set_xlim(0, 1.15 * max(interval.high for interval in intervals))
    axes.set_title(title, fontsize=10)
    return figure


def times_faster(interval: MedianInterval) -> Cell:
    median, low, high = interval
    return Cell(f"{median:.2f} [{low:.2f}, {high:.2f}]", (median, low, high))


def machine_line(machine: Mapping[str, Any]) -> str:
    """Returns hardware, versions and date as one line for people."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['instructions']}, "
        f"threads {machine['threads']}, load {machine['load']:.1f}; {packages}; {machine['date']}"
    )
