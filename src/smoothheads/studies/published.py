"""The published values: one CSV per experiment, each row with its sigma, base method and structure."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from smoothheads.report.table import NONE, Cell, Table, word

KEYS = ("sigma", "base", "structure")


@dataclass(frozen=True, slots=True)
class PublishedRow:
    sigma: float
    base: str
    structure: str
    values: Mapping[str, str]
    """As printed, by column; empty where nothing is printed."""

    def number(self, column: str) -> float | None:
        text = self.values.get(column, "")
        return float(text) if text else None

    @property
    def arm(self) -> str:
        return f"{self.base} {self.structure}"


def lines(name: str) -> list[dict[str, str]]:
    text = resources.files("smoothheads.studies").joinpath("published", f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def rows(name: str) -> tuple[PublishedRow, ...]:
    """In the paper's order."""
    return tuple(
        PublishedRow(
            float(line["sigma"]),
            line["base"],
            line["structure"],
            {key: value for key, value in line.items() if key not in KEYS},
        )
        for line in lines(name)
    )


def table(name: str, title: str) -> Table:
    """The values as they are printed."""
    found = lines(name)
    columns = tuple(found[0])
    return Table(
        title=f"{name}: {title} (published)",
        columns=tuple(column.removeprefix("ca_") for column in columns),
        rows=tuple(tuple(_cell(line[column]) for column in columns) for line in found),
        notes=_notes(columns),
    )


def _notes(columns: tuple[str, ...]) -> tuple[str, ...]:
    notes = []
    if any(column.startswith("ca_") for column in columns):
        notes.append("Columns of radii: certified accuracy (%).")
    if "origin" in columns:
        notes.append("copied: taken over from Horvath et al. by the paper; measured: by its authors.")
    if "status" in columns:
        notes.append("The figure prints no numbers; derived: follows from a table.")
    return tuple(notes)


def _cell(text: str) -> Cell:
    if not text:
        return NONE
    try:
        return Cell(text, float(text))
    except ValueError:
        return word(text)
