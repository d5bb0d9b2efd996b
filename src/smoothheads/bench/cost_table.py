"""The paper's cost tables: ratios measured here beside those that follow from the published values."""

from __future__ import annotations

import re
from collections.abc import Mapping

from smoothheads.bench.costs import Costs
from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.results.intervals import MedianInterval
from smoothheads.studies import published
from smoothheads.studies.published import PublishedRow

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "train": ("train_seconds_per_epoch",),
    "certify": ("certify_seconds_per_image", "seconds_per_image"),
    "gflops": ("gflops",),
}


def table(name: str, costs: Costs) -> Table:
    """SOME over every other structure of the table, in time and arithmetic."""
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
    shown = {(row.base, row.structure) for row in printed}
    sizes = "; ".join(
        f"{' '.join(key)}: {params:,} parameters, {costs.gflops[key]:.4f} GFLOPs"
        for key, params in costs.params.items()
        if key in shown
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
