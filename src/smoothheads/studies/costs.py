"""The paper's cost tables: ratios measured here beside those that follow from the published values.

`studies.measure` measures them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from smoothheads.config import load_json
from smoothheads.errors import LedgerError
from smoothheads.files import write_json
from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.results.metrics import Floats, MedianInterval, interval_of_median
from smoothheads.studies import published
from smoothheads.studies.published import PublishedRow

FILE, STAMP = "costs.json", '"gflops"'
Key = tuple[str, str]
"""Base method and structure."""
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "train": ("train_seconds_per_epoch",),
    "certify": ("certify_seconds_per_image", "seconds_per_image"),
    "gflops": ("gflops",),
    "params": ("params",),
}
_COUNTED = ("gflops", "params")
"""Costs that are amounts; the others are rates, of which more is cheaper."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Rates (images or samples per second) of every round, and arithmetic, by base and structure."""

    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    train: Mapping[Key, Floats]
    certify: Mapping[Key, Floats]
    params: Mapping[Key, int]
    gflops: Mapping[Key, float]

    def ratios(self) -> dict[tuple[str, str, str, str], MedianInterval]:
        """By cost, baseline's base, this and the baseline structure, with the 95 % interval of the median.
        This one has the baseline's base, or the first that it has, by name."""
        ratios = {}
        for name in _COLUMNS:
            keys: Collection[Key] = getattr(self, name)
            for (base, baseline), this in itertools.product(keys, dict.fromkeys(key[1] for key in keys)):
                own = base if (base, this) in keys else min(key[0] for key in keys if key[1] == this)
                ratio = self.ratio(name, (own, this), (base, baseline))
                if this != baseline and ratio is not None:
                    ratios[name, base, this, baseline] = ratio
        return ratios

    def ratio(self, name: str, this: Key, baseline: Key) -> MedianInterval | None:
        """Of one cost, this over baseline; none where one of them was not measured."""
        costs: Mapping[Key, Any] = getattr(self, name)
        if this not in costs or baseline not in costs:
            return None
        mine, theirs = np.atleast_1d(costs[this]), np.atleast_1d(costs[baseline])
        return interval_of_median(mine / theirs if name in _COUNTED else theirs / mine)


def save(costs: Costs, folder: Path) -> None:
    """What was measured before on this machine with these settings stays, if it is not measured anew."""
    before = None
    with suppress(LedgerError):  # damaged: replaced
        before = load(folder)
    if before is not None and (before.settings, before.machine) == (costs.settings, costs.machine):
        parts: dict[str, Any] = {name: {**getattr(before, name), **getattr(costs, name)} for name in _COLUMNS}
        costs = replace(costs, **parts)

    def plain_keys(values: Mapping[Key, Any]) -> dict[str, Any]:
        return {" ".join(key): v.tolist() if isinstance(v, np.ndarray) else v for key, v in values.items()}

    parts = {name: plain_keys(getattr(costs, name)) for name in _COLUMNS}
    write_json(folder / FILE, {"settings": costs.settings, "machine": costs.machine, **parts})


def load(folder: Path) -> Costs | None:
    """What was measured, if that was kept in a folder of results; raises LedgerError where it is damaged."""
    path = folder / FILE
    if not path.is_file():
        return None

    def keys(values: Mapping[str, Any]) -> dict[Key, Any]:
        pairs = {(name.split(" ")[0], name.split(" ")[1]): v for name, v in values.items()}
        return {key: np.array(v, float) if isinstance(v, list) else 0 + v for key, v in pairs.items()}

    data = load_json(path)
    try:
        parts = {name: keys(data[name]) for name in _COLUMNS}
        return Costs(dict(data["settings"]), dict(data["machine"]), **parts)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        got = f"{type(error).__name__}: {error}"
        raise LedgerError(f"measured costs in {path}", got, "measure them again") from None


def table(name: str, costs: Costs) -> Table:
    """SOME over every other structure of the table, in time, arithmetic and parameters."""
    rows = []
    printed = published.rows(name)
    own = {row.base for row in printed if row.structure == "some"}
    for cost, columns in _COLUMNS.items():
        column = next((known for known in columns if known in printed[0].values), None)
        for base, baseline in _others(printed):
            theirs = _published(printed, column, base, baseline)
            this = base if base in own else next(iter(own))
            ours = costs.ratio(cost, (this, "some"), (base, baseline))
            if theirs is not None or ours is not None:
                of = base if base == this else f"{this} / {base}"
                rows.append(_row(f"{cost}: some / {baseline}, {of}", ours, theirs))
    sizes = "; ".join(
        f"{' '.join(key)}: {costs.params[key]:,} parameters, {costs.gflops[key]:.4f} GFLOPs"
        for key in dict.fromkeys((row.base, row.structure) for row in printed)
        if key in costs.params
    )
    settings = costs.settings
    return Table(
        title=f"{name}: cost ratios, {settings['arch']} at {settings['side']}x{settings['side']}",
        columns=("cost", "here", "95 % of the median", "published"),
        rows=tuple(rows),
        notes=(
            f"{settings['rounds']} rounds in turns on {costs.machine['processor']}, processor time of "
            f"{settings['threads']} thread. K networks trained apart take K times one, by definition.",
            f"GFLOPs in the paper's convention. {sizes}.",
        ),
    )


def _others(rows: tuple[PublishedRow, ...]) -> list[tuple[str, str]]:
    """What SOME is compared with: rows of its own base, in table8 those of other bases."""
    own = {row.base for row in rows if row.structure == "some"}
    others = [(row.base, row.structure) for row in rows if row.structure != "some"]
    mine = [pair for pair in others if pair[0] in own]
    return list(dict.fromkeys(mine or others))


def _published(rows: tuple[PublishedRow, ...], column: str | None, base: str, baseline: str) -> float | None:
    if column is None:
        return None
    other = next(row for row in rows if (row.base, row.structure) == (base, baseline))
    mine = [row for row in rows if row.structure == "some" and row.sigma == other.sigma]
    this = next((row for row in mine if row.base == base), mine[0] if mine else None)
    return None if this is None else total(this.values[column]) / total(other.values[column])


def total(text: str) -> float:
    """What `21.5 x3 + 1055.0` comes to."""
    parts = [re.fullmatch(r"([\d.]+)(?: x(\d+))?", part.strip()) for part in text.split("+")]
    return sum(float(part[1]) * int(part[2] or 1) for part in parts if part)


def _row(name: str, ours: MedianInterval | None, theirs: float | None) -> tuple[Cell, ...]:
    return (
        word(name),
        number(ours and ours.median, ".3f"),
        NONE if ours is None else Cell(f"[{ours.low:.3f}, {ours.high:.3f}]", (ours.low, ours.high)),
        number(theirs, ".3f"),
    )
