"""The tables of a comparison: certified accuracy, paired differences, and what lies behind the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.results import metrics
from smoothheads.results.compare import Comparison, Difference, Paired, Summary
from smoothheads.results.metrics import Estimate, Floats, mean

CLASSES = "classes: of which any image is certified right, of those that the images have."
_EXPLAINED = {
    "ceiling": "ceiling: the largest radius that n samples can show; at it: share of images that reach it.",
    "classes": CLASSES,
    "noisy": "noisy: samples classified right, of all images; hard: of the half hardest for all logs.",
    "samples": "samples: per image, selection included; s: seconds per image.",
}


def all_tables(comparison: Comparison) -> list[Table]:
    return [headline(comparison), *differences(comparison), background(comparison)]


def headline(comparison: Comparison) -> Table:
    """ACR and certified accuracy at each radius, one row per log."""
    norm = comparison.logs[0].norm
    title = f"Average certified radius, and certified accuracy (%) at {norm} radius r"
    table = certified(title, comparison.summaries, [f"{r:.2f}" for r in comparison.radii])
    rows = table.rows
    notes = table.notes
    if len(rows) > 1 and len({s.sigma for s in comparison.summaries}) == 1:
        rows = tuple(_mark_best(rows, comparison))
    if any(cell.best for row in rows for cell in row):
        notes += ("Bold: larger than all others by more than two standard errors of the paired difference.",)
    return replace(table, rows=rows, notes=(*notes, *comparison.notes))


def certified(title: str, summaries: Sequence[Summary], radii: Sequence[str], what: str = "log") -> Table:
    """The same of any certificates; `radii` names the columns, `what` the rows."""
    rows = [(word(s.name), _number(s.acr, 3), *(_percent(each) for each in s.certified)) for s in summaries]
    return Table(
        title=title,
        columns=(what, "ACR", *radii),
        rows=tuple(rows),
        notes=("± is the standard error over images.",),
    )


def classes(certified: float, there: int) -> Cell:
    """Of how many classes any image is certified right, perhaps as a mean over seeds."""
    return Cell(f"{round(certified, 1):g}/{there}", certified)


def differences(comparison: Comparison) -> list[Table]:
    """For each log but the first: what it gains on the first, image by image."""
    return [_difference_table(comparison, each) for each in comparison.differences]


def background(comparison: Comparison) -> Table:
    """Settings, what else happened to the images, and cost: one row per log."""
    makers: dict[str, Callable[[Summary], Cell]] = {
        "log": lambda s: word(s.name),
        "sigma": lambda s: number(s.sigma, "g"),
        "images": lambda s: number(s.images, ",d"),
        "n": lambda s: number(s.n, ",d"),
        "alpha": lambda s: number(s.alpha, "g"),
        "ceiling": lambda s: number(s.ceiling, ".3f"),
        "at it": lambda s: number(s.at_ceiling, ".1f", 100),
        "classes": lambda s: classes(*s.classes),
        "abstain": lambda s: _percent(s.abstained),
        "noisy": lambda s: NONE if s.noisy_accuracy is None else _percent(s.noisy_accuracy),
        "hard": lambda s: NONE if s.hard_accuracy is None else _percent(s.hard_accuracy),
        "budget": lambda s: word(s.budget),
        "samples": lambda s: NONE if s.samples is None else _cost(s.samples, ",.0f"),
        "s": lambda s: _cost(s.seconds, ".3g"),
    }
    columns = {name: [make(s) for s in comparison.summaries] for name, make in makers.items()}
    known = {name: cells for name, cells in columns.items() if any(cell is not NONE for cell in cells)}
    return Table(
        title="Behind the numbers (shares in %, cost per image)",
        columns=tuple(known),
        rows=tuple(zip(*known.values(), strict=True)),
        notes=tuple(note for name, note in _EXPLAINED.items() if name in known),
    )


def _difference_table(comparison: Comparison, difference: Difference) -> Table:
    """One row for ACR, one for each radius, and noisy accuracy where both logs kept votes."""
    images = len(comparison.logs[0])
    at_radii = zip(comparison.radii, difference.certified, strict=True)
    rows = [_pair("ACR", difference.acr, 1, 3)]
    rows += [_pair(f"r = {radius:.2f}", paired, 100, 1) for radius, paired in at_radii]
    noisy = {"noisy": difference.noisy_accuracy, "hard": difference.hard_accuracy}
    rows += [_pair(name, paired, 100, 1) for name, paired in noisy.items() if paired is not None]
    notes = [
        "Accuracies in points. p: exact paired (McNemar) test, which decides; the interval is a bootstrap "
        "over images, and of few images it may leave out 0 where the test does not."
    ]
    if difference.hard_accuracy is not None:
        notes.append("hard: noisy accuracy on the half of the images that all logs together find hardest.")
    return Table(
        title=f"{difference.name} against {difference.baseline}, paired over {images} images",
        columns=("", "baseline", "this", "difference", "95 % interval", "p"),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _pair(name: str, paired: Paired, scale: float, digits: int) -> tuple[Cell, ...]:
    def shown(value: float, sign: str = "") -> str:
        return f"{scale * value:{sign}.{digits}f}"

    low, high = (shown(bound, "+") for bound in paired.interval)
    error = "" if paired.standard_error is None else f" ±{shown(paired.standard_error)}"
    change = f"{shown(paired.difference, '+')}{error}"
    p = paired.p_value
    return (
        word(name),
        Cell(shown(paired.baseline), paired.baseline),
        Cell(shown(paired.this), paired.this),
        Cell(change, paired.difference, standard_error=paired.standard_error),
        Cell(f"[{low}, {high}]", tuple(paired.interval)),
        NONE if p is None else Cell("<0.001" if p < 0.001 else f"{p:.3f}", p),
    )


def _mark_best(rows: Sequence[tuple[Cell, ...]], comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    best = np.array([_clearly_best(column) for column in _columns(comparison)])  # [columns, logs]
    for i, (name, *cells) in enumerate(rows):
        yield name, *(replace(cell, best=bool(best[j, i])) for j, cell in enumerate(cells))


def _columns(comparison: Comparison) -> Iterator[Floats]:
    """What the numbers of a column are means of [logs, images]: radii, then hits at each radius."""
    logs = comparison.logs
    yield np.array([metrics.certified_radii(log.correct, log.radius) for log in logs])
    reached = np.array([metrics.certified(log.correct, log.radius, comparison.radii) for log in logs])
    yield from np.moveaxis(reached.astype(np.float64), 2, 0)


def _clearly_best(values: Floats) -> list[bool]:
    def above(i: int, j: int) -> bool:
        gain, error = mean(values[i] - values[j])
        return gain > 2 * error

    places = range(len(values))
    return [all(above(i, j) for j in places if j != i) for i in places]


def _cost(estimate: Estimate, form: str) -> Cell:
    error = f"±{estimate.standard_error:{form}}" if estimate.standard_error > 0 else ""
    return Cell(format(estimate.value, form), estimate.value, error, estimate.standard_error)


def _number(estimate: Estimate, digits: int, scale: float = 1) -> Cell:
    value, error = estimate
    shown = f"±{scale * error:.{digits}f}" if error > 0 else ""
    return Cell(f"{scale * value:.{digits}f}", value, shown, error)


def _percent(estimate: Estimate) -> Cell:
    return _number(estimate, 1, 100)
