"""Results as tables: comparisons, other threats, attacks, and how different heads are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smoothheads.attack.outcome import AttackOutcome
from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.results import derive, metrics
from smoothheads.results.compare import (
    Bootstrapped,
    Comparison,
    Paired,
    Summary,
    summarize,
)
from smoothheads.results.metrics import Estimate, Floats, mean
from smoothheads.results.results import Results

CLASSES = "classes: classes with at least one correctly certified image, of those present."
_NOTES = {
    "ceiling": "ceiling: the largest radius that n samples can show; at it: fraction of images there.",
    "noisy": "noisy: fraction of noisy samples classified correctly; hard: the same on the harder half of "
    "the images, the same half for all logs.",
    "samples": "samples: per image, selection included; s: seconds per image.",
}
_HEAD_MEASURES = {
    "disagreement": "disagreement",
    "error_correlation": "correlation",
    "variance_ratio": "variance",
}


# Comparisons


def all_tables(comparison: Comparison) -> list[Table]:
    tables = [headline(comparison), *differences(comparison)]
    return [*tables, class_table(comparison), background(comparison)]


def headline(comparison: Comparison) -> Table:
    """Returns ACR and certified accuracy at each radius, one row per log."""
    logs = comparison.logs
    title = f"Average certified radius, and certified accuracy (%) at {logs[0].norm} radius r"
    table = certified(title, comparison.summaries, [f"{r:.2f}" for r in comparison.radii])
    rows, notes = table.rows, table.notes
    if len(rows) > 1 and len({log.sigma for log in logs}) == 1:
        # Each column of the table is a mean of [logs, images].
        hits = np.array([log.certified_at(comparison.radii) for log in logs])
        radii = np.array([log.certified_radius for log in logs])
        columns = [radii, *np.moveaxis(hits.astype(np.float64), 2, 0)]
        best = np.array([_clearly_best(column) for column in columns])  # [columns, logs]
        rows = tuple(
            (name, *(replace(cell, best=bool(best[j, i])) for j, cell in enumerate(cells)))
            for i, (name, *cells) in enumerate(rows)
        )
        if best.any():
            notes += (
                "Bold (* in text): larger than all others by more than two standard errors of the paired "
                "difference.",
            )
    return replace(table, rows=rows, notes=(*notes, *comparison.notes))


def certified(title: str, summaries: Sequence[Summary], radii: Sequence[str], what: str = "log") -> Table:
    """Returns ACR and certified accuracy of any certificates."""
    rows = [
        (word(s.log.name), _estimate(s.acr, ".3f"), *(_estimate(each, ".1f", 100) for each in s.certified))
        for s in summaries
    ]
    return Table(
        title=title,
        columns=(what, "ACR", *radii),
        rows=tuple(rows),
        notes=("± is the standard error over images.",),
    )


def classes(certified: float, present: int) -> Cell:
    """Returns the number of classes with a certificate, perhaps a mean over seeds, of those present."""
    return Cell(f"{round(certified, 1):g}/{present}", certified)


def differences(comparison: Comparison) -> list[Table]:
    """Returns for each log but the first what it gains on the first, image by image."""
    found = []
    for each in comparison.differences:
        # One row for ACR, one for each radius, for the classes, and for the votes of both logs.
        at_radii = zip(comparison.radii, each.certified, strict=True)
        noisy = {"noisy": each.noisy_accuracy, "hard": each.hard_accuracy}
        rows = [
            _pair("ACR", each.acr, 1, 3),
            *(_pair(f"r = {radius:.2f}", paired, 100, 1) for radius, paired in at_radii),
            _pair("worst class ACR", each.worst_acr, 1, 3),
            _pair("spread", each.spread, 1, 3),
            *(_pair(name, paired, 100, 1) for name, paired in noisy.items() if paired is not None),
        ]
        notes = [
            "Accuracies in points. p: exact paired (McNemar) test, which decides; the interval is a "
            "bootstrap over images, and of few images it may leave out 0 where the test does not.",
            "spread: largest minus smallest class ACR.",
        ]
        if each.hard_accuracy is not None:
            notes.append(
                "hard: noisy accuracy on the half of the images that all logs together find hardest."
            )
        title = f"{each.name} against {each.baseline}, paired over {len(comparison.logs[0])} images"
        columns = ("", "baseline", "this", "difference", "95 % interval", "p")
        found.append(Table(title, columns, tuple(rows), tuple(notes)))
    return found


def class_table(comparison: Comparison) -> Table:
    """Returns how evenly the classes are served, one row per log."""
    rows = []
    for log, each in zip(comparison.logs, comparison.classes, strict=True):
        numbers = (each.certified, each.worst_acr, each.spread, *each.worst_accuracy)
        rows.append((word(log.name), *class_cells(word(log.class_name(each.worst)), each.present, numbers)))
    note = (
        "worst: the class with the smallest ACR; spread: largest minus smallest class ACR; worst at r: the "
        "smallest certified accuracy (%) of a class. Intervals are bootstraps over images; a smallest value "
        "of many tends to lie at their upper end."
    )
    return class_rows(("log",), comparison.radii, rows, note)


def class_rows(
    names: Sequence[str], radii: Sequence[float], rows: Sequence[tuple[Cell, ...]], note: str
) -> Table:
    """Returns how evenly the classes are served, which ACR does not show.

    Args:
        names: The first columns, which say what a row is about.
        radii: The radii r at which the worst class is shown.
        rows: The cells of these columns, then those of `class_cells`.
    """
    at_radii = (f"worst at {radius:.2f}" for radius in radii)
    columns = (*names, "classes", "worst", "worst ACR", "spread", *at_radii)
    return Table("How evenly the classes are served", columns, tuple(rows), (CLASSES, note))


def class_cells(worst: Cell, present: int, numbers: Sequence[Bootstrapped]) -> tuple[Cell, ...]:
    """Returns the cells of one row of `class_rows`.

    Args:
        numbers: Certified classes, smallest class ACR, spread, and smallest accuracy at each radius.
    """

    def cell(number: Bootstrapped, show: Callable[[float], str], end: str = "") -> Cell:
        low, high = number.interval
        return Cell(
            show(number.value) + end, number.value, f"[{show(low)}, {show(high)}]", interval=(low, high)
        )

    certified, worst_acr, spread, *accuracy = numbers
    return (
        cell(certified, lambda count: f"{round(count, 1):g}", f"/{present}"),
        worst,
        *(cell(radius, "{:.3f}".format) for radius in (worst_acr, spread)),
        *(cell(each, lambda fraction: f"{100 * fraction:.1f}") for each in accuracy),
    )


def background(comparison: Comparison) -> Table:
    """Returns settings, what else happened to the images, and cost: one row per log."""
    makers: dict[str, Callable[[Summary], Cell]] = {
        "log": lambda s: word(s.log.name),
        "sigma": lambda s: number(s.log.sigma, "g"),
        "images": lambda s: number(len(s.log), ",d"),
        "n": lambda s: number(s.log.n, ",d"),
        "alpha": lambda s: number(s.log.alpha, "g"),
        "ceiling": lambda s: number(s.ceiling, ".3f"),
        "at it": lambda s: number(s.at_ceiling, ".1f", 100),
        "abstain": lambda s: _estimate(s.abstained, ".1f", 100),
        "noisy": lambda s: _estimate(s.noisy_accuracy, ".1f", 100),
        "hard": lambda s: _estimate(s.hard_accuracy, ".1f", 100),
        "budget": lambda s: word(s.log.budget),
        "samples": lambda s: _estimate(s.samples, ",.0f"),
        "s": lambda s: _estimate(s.seconds, ".3g"),
    }
    columns = {name: [make(s) for s in comparison.summaries] for name, make in makers.items()}
    known = {name: cells for name, cells in columns.items() if any(cell is not NONE for cell in cells)}
    return Table(
        title="Settings and cost (fractions in %, cost per image)",
        columns=tuple(known),
        rows=tuple(zip(*known.values(), strict=True)),
        notes=tuple(note for name, note in _NOTES.items() if name in known),
    )


def _pair(name: str, paired: Paired, scale: float, digits: int) -> tuple[Cell, ...]:
    def shown(value: float, sign: str = "") -> str:
        return f"{scale * value:{sign}.{digits}f}"

    low, high = (shown(bound, "+") for bound in paired.interval)
    error = "" if paired.standard_error is None else f" ±{shown(paired.standard_error)}"
    p = paired.p_value
    return (
        word(name),
        Cell(shown(paired.baseline), paired.baseline),
        Cell(shown(paired.this), paired.this),
        Cell(
            f"{shown(paired.difference, '+')}{error}",
            paired.difference,
            standard_error=paired.standard_error,
        ),
        Cell(f"[{low}, {high}]", tuple(paired.interval)),
        NONE if p is None else Cell("<0.001" if p < 0.001 else f"{p:.3f}", p),
    )


def _clearly_best(values: Floats) -> list[bool]:
    """Returns for each log of [logs, images] whether its mean is larger than all others beyond doubt."""

    def above(i: int, j: int) -> bool:
        gain, error = mean(values[i] - values[j])
        return gain > 2 * error

    places = range(len(values))
    return [all(above(i, j) for j in places if j != i) for i in places]


def _estimate(estimate: Estimate | None, form: str, scale: float = 1) -> Cell:
    """Returns a mean with its standard error below it; a certainty has none."""
    if estimate is None:
        return NONE
    value, error = estimate
    shown = f"±{scale * error:{form}}" if error > 0 else ""
    return Cell(f"{scale * value:{form}}", value, shown, error)


# Other threats


@dataclass(frozen=True, slots=True)
class Threats:
    """The certificates of one log against one or more threats that share a table."""

    title: str
    logs: tuple[Results, ...]
    """Named after their threats; radii in pixels."""
    radii: tuple[float, ...]
    """The radii of the table, in its unit."""
    unit: float = 1.0
    """The number of pixels in one unit of the table's radii."""

    def table(self) -> Table:
        in_units = [replace(log, radius=log.radius / self.unit) for log in self.logs]
        summaries = [summarize(log, self.radii) for log in in_units]
        return certified(self.title, summaries, [f"{radius:.4g}" for radius in self.radii], "threat")

    def to_json(self) -> Iterator[dict[str, Any]]:
        """Yields one object per threat; radii in pixels, rounded down."""
        radii = [self.unit * radius for radius in self.radii]
        for log in self.logs:
            summary = summarize(log, radii)
            yield {
                "threat": log.name,
                "norm": log.norm,
                "acr": summary.acr.value,
                "radii": radii,
                "certified": [each.value for each in summary.certified],
                "images": [
                    {"idx": row.index, "label": row.label, "predict": row.prediction, "radius": row.radius}
                    for row in log
                ],
            }


def linf(log: Results, levels: Sequence[float] | None = None, dimension: int | None = None) -> Threats:
    """Returns l-infinity certificates in steps of the images' grid, as such threats are stated (8/255).

    Args:
        levels: The radii of the table in steps of the grid; by default powers of two.
        dimension: The number of pixel values, for a log that does not state its shape.
    """
    q = (None if log.manifest is None else log.manifest.grid) or 255
    converted = replace(derive.linf(log, dimension), name=derive.LINF)
    top = q * float(converted.radius.max())
    radii = (0.0, *(2.0**i for i in range(-3, 9) if 2.0**i <= top)) if levels is None else tuple(levels)
    title = f"{log.name}: certified accuracy (%) at l-infinity radius r, in steps of 1/{q}"
    return Threats(title, (converted,), radii, 1 / q)


def top_k(log: Results, ks: Sequence[int], radii: Sequence[float] | None = None) -> Threats:
    """Returns top-k certificates, below those of the first place that the log itself certifies.

    Args:
        radii: The l2 radii of the table; by default steps of a quarter.
    """
    others = [replace(derive.top_k(log, k), name=f"top-{k}") for k in ks]
    logs = (replace(log, name="the log itself"), *others)
    top = max(float(each.radius.max()) for each in logs)
    chosen = metrics.default_radii(top) if radii is None else tuple(radii)
    title = f"{log.name}: true label certified among the k most likely (%), at l2 radius r"
    return Threats(title, logs, chosen)


# Attacks


def attack_table(outcome: AttackOutcome, radii: Sequence[float]) -> Table:
    """Returns certified accuracy from below, accuracy under attack from above, and the verdict."""
    curves = {
        "certified (lower)": outcome.certified_accuracy(radii),
        "attacked (upper)": outcome.empirical_accuracy(radii),
    }
    rows = [(Cell(name), *(number(float(x), ".1f", 100) for x in values)) for name, values in curves.items()]
    broken, images = len(outcome.violations), len(outcome.attacked)
    claims = sum(not each.claim.abstained for each in outcome.attacked)
    expected = f"up to {outcome.level * images:.2g} expected by chance"
    if not broken:
        verdict = f"No certificate of {claims} was broken ({expected})."
    else:
        some = ", ".join(str(each.claim.index) for each in outcome.violations[:8])
        judged = "the ledger is REFUTED" if outcome.refuted else "the ledger is not refuted"
        verdict = (
            f"{broken} of {claims} certificates were broken (idx {some}; {expected}): {judged}, "
            f"p = {outcome.p_value:.2g}."
        )
    return Table(
        title="Accuracy (%) of the smoothed classifier within radius r",
        columns=("", *(f"{r:.3g}" for r in radii)),
        rows=tuple(rows),
        notes=(verdict, "attacked: correct, and no image nearer than r was found that gets another class."),
    )


# Heads under noise

Facts = Mapping[str, Any]


def heads_over_images(networks: Sequence[Facts]) -> Table:
    """Returns how the heads of each network differ over many images; a single head has no such measures."""

    def row(facts: Facts) -> tuple[Cell, ...]:
        images = facts["images"]
        worst, best = min(images["head_accuracy"]), max(images["head_accuracy"])
        return (
            word("all samples" if len(networks) == 1 else facts["name"]),
            number(images["accuracy"], ".1f", 100),
            Cell(f"{100 * worst:.1f} to {100 * best:.1f}" if facts["heads"] > 1 else "–"),
            *(number(images[key], ".3f") for key in _HEAD_MEASURES),
        )

    first = networks[0]["images"]
    return Table(
        title=f"Heads under noise: {first['images']} images, {first['samples']:,} samples, "
        f"sigma {networks[0]['sigma']:g}",
        columns=("", "correct %", "heads correct %", *_HEAD_MEASURES.values()),
        rows=tuple(map(row, networks)),
        notes=(
            "disagreement: fraction of samples on which two heads predict different classes.",
            "correlation: of two heads' errors; 1 when they fail together, 0 when independently.",
            "variance: of the ensemble's logits over the heads' own; 1 when they move together, 1/L when "
            "independently.",
        ),
    )


def margins_of_one_image(networks: Sequence[Facts]) -> Table:
    """Returns the log-probability margins of one image, by the ensemble and each head."""
    image, rows = networks[0]["image"], []
    for facts in networks:
        curves = facts["image"]["curves"]
        chosen = curves if facts["heads"] > 1 else {"network": curves["ensemble"]}
        rows += [
            (
                Cell(name if len(networks) == 1 else f"{facts['name']}: {name}"),
                Cell(f"{100 * curve['correct']:.2f}"),
                Cell(f"{curve['mean']:.2f}"),
                number(curve["std"], ".2f"),
            )
            for name, curve in chosen.items()
        ]
    return Table(
        title=f"Log-probability margin of image {image['index']} ({image['label']}), "
        f"{image['samples']:,} samples",
        columns=("", "correct %", "mean margin", "std"),
        rows=tuple(rows),
    )
