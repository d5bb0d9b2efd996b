"""The paper's cost tables: ratios measured here next to those that follow from the published values.

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

from smoothheads.config import from_dict, load_json
from smoothheads.errors import ConfigError, LedgerError
from smoothheads.files import write_json
from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.results.metrics import Floats, MedianInterval, interval_of_median
from smoothheads.studies.experiments import PublishedRow, published_rows

FILE, STAMP = "costs.json", '"gflops"'
Key = tuple[str, str]
"""Base method and structure."""
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "train": ("train_seconds_per_epoch",),
    "certify": ("certify_seconds_per_image", "seconds_per_image"),
    "gflops": ("gflops",),
    "params": ("params",),
}
"""Every cost with its columns in the published tables."""
MOST = 1e15
"""More than any rate, arithmetic or number of parameters."""
_AMOUNTS = ("gflops", "params")
"""The other costs are rates, of which more is cheaper."""


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
        """Returns ratios by cost, base of the baseline, this and the baseline structure.

        This structure has the baseline's base, or the first that it has, by name.
        """
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
        """Returns one cost of this over the baseline, with the 95 % interval of the median over rounds.

        Args:
            name: train, certify, gflops or params.
            this: Base and structure of the numerator.
            baseline: Base and structure of the denominator.
        """
        costs: Mapping[Key, Any] = getattr(self, name)
        if this not in costs or baseline not in costs:
            return None
        own, other = np.atleast_1d(costs[this]), np.atleast_1d(costs[baseline])
        return interval_of_median(own / other if name in _AMOUNTS else other / own)


def save(costs: Costs, folder: Path) -> None:
    """Writes the costs; what was measured before with the same settings on the same machine stays."""
    before = None
    with suppress(LedgerError):  # a damaged file is replaced
        before = load(folder)
    if before is not None and (before.settings, before.machine) == (costs.settings, costs.machine):
        parts: dict[str, Any] = {name: {**getattr(before, name), **getattr(costs, name)} for name in _COLUMNS}
        costs = replace(costs, **parts)
    plain = {
        name: {
            " ".join(key): value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in getattr(costs, name).items()
        }
        for name in _COLUMNS
    }
    write_json(folder / FILE, {"settings": costs.settings, "machine": costs.machine, **plain})


@dataclass(frozen=True, kw_only=True, slots=True)
class _CostFile:
    """`costs.json` as it is written; the codec of configurations checks all types."""

    settings: dict[str, Any]
    machine: dict[str, Any]
    train: dict[str, tuple[float, ...]]
    certify: dict[str, tuple[float, ...]]
    params: dict[str, int]
    gflops: dict[str, float]


def load(folder: Path) -> Costs | None:
    """Returns the costs in a folder of results, if there are any; raises LedgerError if they are damaged."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        file = from_dict(_CostFile, load_json(path))
        for name in _COLUMNS:
            _check_costs(name, getattr(file, name))
        if file.params.keys() != file.gflops.keys():
            raise ConfigError("params and gflops have different rows.")
        missing = [name for name in ("arch", "side", "rounds", "threads") if name not in file.settings]
        missing += [name for name in ("processor",) if name not in file.machine]
        if missing and (file.train or file.certify or file.params):
            raise ConfigError(f"{missing[0]} is missing.")
    except ConfigError as error:
        raise LedgerError(f"The measured costs in {path} are damaged, measure them again: {error}") from None

    def keyed(values: Mapping[str, Any]) -> dict[Key, Any]:
        pairs = {(name.split(" ")[0], name.split(" ")[1]): value for name, value in values.items()}
        return {key: np.array(v) if isinstance(v, tuple) else v for key, v in pairs.items()}

    return Costs(file.settings, file.machine, **{name: keyed(getattr(file, name)) for name in _COLUMNS})


def _check_costs(name: str, values: Mapping[str, Any]) -> None:
    """Refuses what cannot be a cost: every row has a base and a structure, and positive finite numbers."""
    rounds = {len(value) for value in values.values() if isinstance(value, tuple)}
    if len(rounds) > 1:
        raise ConfigError(f"The rows of {name} have different numbers of rounds.")
    for key, value in values.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if len(key.split(" ")) != 2:
            raise ConfigError(f"{key[:40]!r} in {name} is no base and structure.")
        if not numbers or not all(0 < number < MOST for number in numbers):
            raise ConfigError(f"{key} in {name} has a number that is not between 0 and {MOST:g}.")


def table(name: str, costs: Costs) -> Table:
    """SOME over every other structure of the table, in time, arithmetic and parameters."""
    rows = []
    printed = published_rows(name)
    own = {row.base for row in printed if row.structure == "some"}
    for cost, columns in _COLUMNS.items():
        column = next((known for known in columns if known in printed[0].values), None)
        for base, baseline in _others(printed):
            this = base if base in own else next(iter(own))
            here = costs.ratio(cost, (this, "some"), (base, baseline))
            published = _published_ratio(printed, column, base, baseline)
            if published is not None or here is not None:
                of = base if base == this else f"{this} / {base}"
                rows.append(
                    (
                        word(f"{cost}: some / {baseline}, {of}"),
                        number(here and here.median, ".3f"),
                        Cell(f"[{here.low:.3f}, {here.high:.3f}]", (here.low, here.high)) if here else NONE,
                        number(published, ".3f"),
                    )
                )
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
            *_not_measured(printed, costs),
        ),
    )


def _not_measured(printed: tuple[PublishedRow, ...], costs: Costs) -> list[str]:
    """Returns a note on published costs that were not measured here."""
    known = {column for columns in _COLUMNS.values() for column in columns}
    memory = [column for column in printed[0].values if column.endswith("_mib")]
    rows = dict.fromkeys(row.arm for row in printed if (row.base, row.structure) not in costs.certify)
    missing = []
    if memory:
        missing.append(f"peak memory ({', '.join(memory)})")
    if hours := [c for c in printed[0].values if c.endswith("hours") or ("hours_" in c and c not in known)]:
        missing.append(f"{', '.join(hours)}, which follow from the seconds")
    missing += [f"the row {row}" for row in rows]
    return [f"Published but not measured here: {'; '.join(missing)}."] if missing else []


def _others(rows: tuple[PublishedRow, ...]) -> list[Key]:
    """Returns what SOME is compared with: rows of its own base, in table8 rows of other bases."""
    own = {row.base for row in rows if row.structure == "some"}
    others = [(row.base, row.structure) for row in rows if row.structure != "some"]
    return list(dict.fromkeys([key for key in others if key[0] in own] or others))


def _published_ratio(
    rows: tuple[PublishedRow, ...], column: str | None, base: str, baseline: str
) -> float | None:
    if column is None:
        return None
    other = next(row for row in rows if (row.base, row.structure) == (base, baseline))
    some = [row for row in rows if row.structure == "some" and row.sigma == other.sigma]
    this = next((row for row in some if row.base == base), some[0] if some else None)
    return None if this is None else total(this.values[column]) / total(other.values[column])


def total(text: str) -> float:
    """Returns the value of a printed sum such as `21.5 x3 + 1055.0`."""
    parts = [re.fullmatch(r"([\d.]+)(?: x(\d+))?", part.strip()) for part in text.split("+")]
    return sum(float(part[1]) * int(part[2] or 1) for part in parts if part)
