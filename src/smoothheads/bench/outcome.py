"""What a benchmark found: rates in turns, shown as ratios with intervals, kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from smoothheads.bench.machine import line
from smoothheads.bench.timing import Floats, interval_of_median, ratio
from smoothheads.files import STAMP, claim, stamped, write_own
from smoothheads.report import plots
from smoothheads.report.table import Cell, Table, to_markdown
from smoothheads.results.intervals import MedianInterval

FORMAT = "smoothheads-bench/1"


@dataclass(frozen=True, slots=True)
class BenchOutcome:
    name: str
    """Of the files that it is written to."""
    title: str
    unit: str
    baselines: tuple[str, ...]
    """Contenders that all are compared with, the main one first."""
    rates: Mapping[str, Floats]
    """Per contender, `unit` in every round."""
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    facts: Mapping[str, Mapping[str, Cell]] = field(default_factory=dict)
    """Further columns, by contender and column."""
    notes: tuple[str, ...] = ()

    def ratio(self, name: str, baseline: str | None = None) -> MedianInterval:
        return ratio(self.rates[name], self.rates[baseline or self.baselines[0]])

    def table(self) -> Table:
        further = list(dict.fromkeys(column for columns in self.facts.values() for column in columns))
        columns = ("", self.unit, *(f"x {name}" for name in self.baselines), *further)
        rows = [self._row(name, further) for name in self.rates]
        rounds = len(next(iter(self.rates.values())))
        how = f"Medians of {rounds} interleaved rounds, with 95 % intervals."
        return Table(self.title, columns, tuple(rows), (how, *self.notes, line(dict(self.machine))))

    def _row(self, name: str, further: Sequence[str]) -> tuple[Cell, ...]:
        speed = interval_of_median(self.rates[name])
        known = self.facts.get(name, {})
        return (
            Cell(name),
            Cell(_three_digits(speed.median), speed.median),
            *(times_faster(self.ratio(name, baseline)) for baseline in self.baselines),
            *(known.get(column, Cell("")) for column in further),
        )

    def to_json(self) -> dict[str, Any]:
        contenders = {
            name: {
                "rates": rates.tolist(),
                "rate": interval_of_median(rates)._asdict(),
                "ratios": {baseline: self.ratio(name, baseline)._asdict() for baseline in self.baselines},
                "facts": {column: cell.value for column, cell in self.facts.get(name, {}).items()},
            }
            for name, rates in self.rates.items()
        }
        return {
            "bench": self.name,
            "title": self.title,
            "unit": self.unit,
            "contenders": contenders,
            "settings": dict(self.settings),
            "machine": dict(self.machine),
            "notes": list(self.notes),
        }

    def plot(self) -> Figure:
        figure, axes = plots.new_axes(f"times faster than: {self.baselines[0]}", "")
        ratios = {name: self.ratio(name) for name in self.rates}
        plots.draw_bars(axes, ratios)
        for place, interval in enumerate(reversed(ratios.values())):
            axes.text(interval.high, place, f"  {interval.median:.2f}", va="center", fontsize=9)
        axes.set_xlim(0, 1.15 * max(interval.high for interval in ratios.values()))
        axes.set_title(self.title, fontsize=10)
        return figure


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times_faster(interval: MedianInterval) -> Cell:
    median, low, high = interval
    return Cell(f"{median:.2f} [{low:.2f}, {high:.2f}]", (median, low, high))


def claim_folder(folder: Path) -> None:
    """Raises StorageError unless results may be written there; worth asking before a long run."""
    claim(folder, lambda there: any(stamped(path, FORMAT) for path in there.glob("*.json")))


def write(folder: Path, name: str, table: Table, values: dict[str, Any], figure: Figure) -> list[Path]:
    """`name`.json with every round, `name`.md with the table, `name`.svg; each replaced as a whole."""
    claim_folder(folder)
    data, text, picture = (folder / f"{name}.{kind}" for kind in ("json", "md", "svg"))
    write_own(data, json.dumps(values | {"format": FORMAT}, indent=2, sort_keys=True) + "\n", FORMAT)
    write_own(text, f"{to_markdown(table)}\n\n<!-- {STAMP} -->\n")
    plots.save(figure, picture)
    return [data, text, picture]
