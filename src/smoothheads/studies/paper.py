"""An experiment of the paper, reported: its rows and columns in its order, published values beside ours."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from smoothheads.errors import ConfigError
from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.report.tables import CLASSES
from smoothheads.results.manifest import FILE as MANIFEST
from smoothheads.studies import reading
from smoothheads.studies.costs import FILE as COSTS
from smoothheads.studies.experiments import EXPERIMENTS, Experiment
from smoothheads.studies.outcome import FACTS, Outcome, Result, load
from smoothheads.studies.published import PublishedRow
from smoothheads.studies.reading import Measured
from smoothheads.studies.tables import acr, certified_accuracy, classes_certified

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BASES = ("gaussian", "consistency", "smoothmix", "smoothadv", "macer")
_SIGMAS = (0.25, 0.5, 1.0)
_AXES: dict[str, tuple[str, str, dict[str, tuple[str, ...]]]] = {
    "fig3": (
        "share",
        "single",
        {
            "SOME": ("single", "some-mid", "some", "some-dnn5"),
            "multi-head": ("single", "heads-mid", "heads", "dnn5"),
        },
    ),
    "fig4": ("L", "single-m2", {"SOME": ("single-m2", "some-2", "some-3", "some", "some-7", "some-10")}),
    "fig5": ("sigma", "some", {name: (name,) for name in ("some", "some-hard", "some-high", "some-self")}),
}
"""What each figure has along its axis, the structure that the others are compared with, and its curves."""
_COUNTED = {
    "share": ("head_share", 100, ".0f", ".0f"),
    "params": ("params", 1, ",.0f", ",.0f"),
    "gflops": ("gmacs_paper", 1, ".4f", ".3f"),
}
"""Columns that are counted of the networks here, for those of another scale are smaller: what a row's size
calls them, times what, and how they are written here and in print."""
_LABELS = {"share": "share of the layers in a head (%)", "L": "heads", "sigma": "sigma"}


def listing() -> Table:
    """All experiments with the claims that they answer."""
    from smoothheads.studies.claims import of_experiment

    rows = [
        (
            *map(word, (each.id, each.kind, each.title)),
            Cell(" ".join(claim.id for claim in of_experiment(each.id)) or "–"),
        )
        for each in EXPERIMENTS.values()
    ]
    return Table("Experiments of the SOME paper", ("id", "kind", "what", "claims"), tuple(rows))


def comparison(experiment: Experiment, outcome: Outcome, *, whole: bool = True) -> Table:
    """Every published row with what was measured here; the published number stands below in brackets. Where
    not the `whole` table is wanted: the rows that were measured, up to the largest radius that one certifies.
    """
    shown, radii = experiment.rows, experiment.radii
    if not whole:
        shown = tuple(row for row in shown if outcome.of("", row.sigma, row.arm))
        most = max((_largest_radius(row, outcome, radii) for row in shown), default=0.0)
        radii = tuple(radius for radius in radii if radius <= most)
    left_out = len(experiment.rows) - len(shown)
    columns = {name for row in experiment.rows for name in row.values}
    shares = [f"{r:.2f}" for r in radii if f"ca_{r:.2f}" in columns]
    extra = [
        name
        for name in experiment.rows[0].values
        if name in (*_COUNTED, "L", "draws") and any(row.values[name] for row in experiment.rows)
    ]
    rows = [_row(row, outcome, extra, shares) for row in shown]
    failed = [f"failed: {name}: {message}" for name, message in outcome.failed.items()]
    return Table(
        title=outcome.title,
        columns=("base structure", "sigma", *extra, "seeds", "ACR", "classes", *shares),
        rows=tuple(rows),
        notes=(
            "In brackets: published. ± is the standard error over seeds where there are several, else over "
            "images. What compares between scales is the sign of a difference, not the radii.",
            *_meanings(extra),
            CLASSES,
            *([f"The paper has {left_out} rows more, which were not measured here."] if left_out else []),
            *failed,
        ),
    )


def _largest_radius(row: PublishedRow, outcome: Outcome, radii: Sequence[float]) -> float:
    """At which the row has any certified accuracy, here or in print."""
    results = list(outcome.of("", row.sigma, row.arm).values())
    certified = [r for r in radii if certified_accuracy(results, r) or row.number(f"ca_{r:.2f}")]
    return max(certified, default=0.0)


def _row(row: PublishedRow, outcome: Outcome, extra: Sequence[str], radii: Sequence[str]) -> tuple[Cell, ...]:
    results = list(outcome.of("", row.sigma, row.arm).values())
    cells = [word(row.arm), number(row.sigma, ".2f")]
    cells += [_size(row, results, name) for name in extra]
    state = "failed" if outcome.has_failed("", row.sigma, row.arm) else "–"
    cells.append(Cell(str(len(results)) if results else state, len(results)))
    if not results:
        cells += [_beside(NONE, row.number("acr"), ".3f"), NONE]
        return (*cells, *(_beside(NONE, row.number(f"ca_{r}"), ".1f") for r in radii))
    radius, error = acr(results)
    found = Cell(f"{radius:.3f}±{error:.3f}", radius, standard_error=error)
    cells += [_beside(found, row.number("acr"), ".3f"), classes_certified(results)]
    for r in radii:
        share = number(certified_accuracy(results, float(r)), ".1f")
        cells.append(_beside(share, row.number(f"ca_{r}"), ".1f"))
    return tuple(cells)


def _beside(cell: Cell, published: float | None, form: str) -> Cell:
    """With the published number in brackets, if the paper has one."""
    return cell if published is None else replace(cell, error=f"({published:{form}})", published=published)


def _size(row: PublishedRow, results: Sequence[Result], column: str) -> Cell:
    if column not in _COUNTED:
        return word(row.values[column])
    _, _, here, in_print = _COUNTED[column]
    return _beside(number(_counted(results, column), here), row.number(column), in_print)


def _counted(results: Sequence[Result], column: str) -> float | None:
    """Of the network here, the same for all its seeds; none of logs of others, which do not tell."""
    name, times, _, _ = _COUNTED[column]
    found = [times * float(each.facts["size"][name]) for each in results if "size" in each.facts]
    return found[0] if found else None


def _meanings(columns: Sequence[str]) -> list[str]:
    meanings = {
        "share": "share: of the layers that one head has (%).",
        "gflops": "gflops: as the paper counts them: multiply-accumulates for one image, with biases, "
        "BatchNorm, ReLU and pooling.",
    }
    return [meaning for name, meaning in meanings.items() if name in columns]


def figure(experiment: Experiment, outcome: Outcome) -> Figure | None:
    """The paper's figure of what was measured; none where it has none, or nothing was measured."""
    from smoothheads.studies import figures, gaps, schedule

    if experiment.kind == "schedule":
        return schedule.figure()
    if "gaps" in outcome.extra:
        return gaps.figure(outcome.extra["gaps"])
    if experiment.id not in _AXES or not any(each.measured for each in outcome.results):
        return None
    axis, baseline, families = _AXES[experiment.id]
    series: dict[str, dict[float, figures.CurvePoint]] = {}
    for row in experiment.rows:
        for family, structures in families.items():
            if row.structure in structures:
                by_sigma = axis == "sigma" or len({each.sigma for each in experiment.rows}) == 1
                name = family if by_sigma else f"{family}, sigma {row.sigma:g}"
                if arm := outcome.of("", row.sigma, row.arm):
                    own = _counted(list(arm.values()), axis) if axis in _COUNTED else None
                    x = row.sigma if axis == "sigma" else float(row.values[axis]) if own is None else own
                    other = outcome.of("", row.sigma, f"{row.base} {baseline}")
                    point = figures.CurvePoint(arm, {} if row.structure == baseline else other)
                    series.setdefault(name, {})[x] = point
    if all(len(points) == 1 for points in series.values()):  # no curve goes through one point
        return figures.claims_figure({experiment.id: outcome}) or figures.acr(outcome)
    if experiment.id != "fig3":
        return figures.curves(_LABELS[axis], series, baseline)
    ensembles = [outcome.of("", sigma, "gaussian dnn5") for _, sigma in outcome.groups()]
    levels = [acr(list(found.values()))[0] for found in ensembles if found]
    return figures.curves(_LABELS[axis], series, baseline, levels, "5 DNNs")


def read_logs(logs: Sequence[str]) -> list[Result]:
    """Logs of others as rows: `BASE/STRUCTURE/SIGMA=PATH`, a path that says all three, or a folder of such.
    Several logs of one row are its seeds, in their order."""
    read: list[Result] = []
    seeds: dict[tuple[str, float], list[Measured]] = {}
    for text in itertools.chain.from_iterable(map(_logs, logs)):
        (base, structure, sigma), path = _named(text)
        arm, facts, measured = f"{base} {structure}", {"imported": path.name}, reading.read(path)
        before = seeds.setdefault((arm, sigma), [])
        if before and not np.array_equal(before[0].index, measured.index):
            got = f"others in {path}"
            raise ConfigError(
                f"the same images in all logs of {arm}", got, "name one of them, or fewer images"
            )
        read.append(Result("", sigma, arm, len(before), measured, facts))
        before.append(measured)
    return read


def with_imports(
    outcomes: Mapping[str, Outcome], logs: Sequence[Result]
) -> tuple[dict[str, Outcome], list[Result]]:
    """Experiments with the logs in place of their own rows, and the logs that none of them has a row for.

    Raises ConfigError where no log is a row of any.
    """
    rows = {name: {(row.sigma, row.arm) for row in EXPERIMENTS[name].rows} for name in outcomes}
    unknown = [log for log in logs if not any((log.sigma, log.arm) in has for has in rows.values())]
    if len(unknown) == len(logs):
        raise ConfigError(
            f"logs of rows that {' or '.join(outcomes)} has",
            ", ".join(f"{log.arm} at sigma {log.sigma:g}" for log in logs),
            "smoothheads paper EXPERIMENT --published shows the rows",
        )
    joined = {}
    for name, outcome in outcomes.items():
        added = [log for log in logs if (log.sigma, log.arm) in rows[name]]
        known = {(log.sigma, log.arm) for log in added}
        own = [each for each in outcome.results if (each.sigma, each.arm) not in known]
        arms = {**outcome.arms, **{log.arm: log.arm for log in added}}
        joined[name] = replace(outcome, results=(*own, *added), arms=arms)
    return joined, unknown


def empty(experiment: Experiment) -> Outcome:
    """Nothing measured yet."""
    return Outcome(
        name=experiment.id,
        title=f"{experiment.id}: {experiment.title}",
        arms={row.arm: row.arm for row in experiment.rows},
        radii=experiment.radii,
        differences=(),
        results=(),
    )


def is_kept(experiment: Experiment, folder: Path) -> bool:
    """Whether a folder of kept experiments says anything of it."""
    there = (folder / experiment.id / FACTS).is_file()
    return there or (experiment.kind == "cost" and (folder / COSTS).is_file())


def kept(experiment: Experiment, folder: Path) -> Outcome:
    """What was kept of an experiment; of a cost table perhaps only the costs."""
    if experiment.kind in ("cost", "schedule") and not (folder / experiment.id / FACTS).is_file():
        return empty(experiment)
    return load(folder / experiment.id)


def _logs(text: str) -> list[str]:
    """The log itself, or every .tsv below a folder that is no ledger."""
    folder = Path(text)
    if not folder.is_dir() or (folder / MANIFEST).is_file():
        return [text]
    found = sorted(map(str, folder.rglob("*.tsv")))
    if not found:
        raise ConfigError(f"certification logs (.tsv) in {folder}", "none", "check the path")
    return found


def _named(text: str) -> tuple[tuple[str, str, float], Path]:
    said, _, path = text.rpartition("=")
    words = said.split("/") if said else re.split(r"[/\\_]|(?<=[a-z])-(?=[\d.])|\.tsv|\.txt|\.log", path)
    base = [word for word in words if word in _BASES]
    structure = [
        word for word in words if re.fullmatch(r"single\d?|dnn\d+|heads(-mid)?|some(-\w+)?|drt3", word)
    ]
    numbers = [float(word) for word in words if re.fullmatch(r"\d+(\.\d+)?", word)]
    sigma = [number for number in numbers if number in _SIGMAS]
    if not (base and structure and sigma):
        raise ConfigError(
            "a log whose path says base, structure and sigma, as some/gaussian-0.25.tsv",
            repr(text),
            "write BASE/STRUCTURE/SIGMA=PATH, for example gaussian/single/0.25=log.tsv",
        )
    return (base[-1], structure[-1], sigma[-1]), Path(path)
