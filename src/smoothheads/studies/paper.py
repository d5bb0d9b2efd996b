"""The paper's experiments, run and reported: its rows and columns, with published values next to ours."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from smoothheads.errors import ConfigError
from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.report.tables import CLASSES
from smoothheads.results import read_log
from smoothheads.results.compare import align_logs
from smoothheads.results.infer import best_fit, infer_settings
from smoothheads.results.manifest import FILE as MANIFEST
from smoothheads.results.results import check_labels_agree
from smoothheads.studies import costs as cost_tables
from smoothheads.studies import experiments, results
from smoothheads.studies.costs import Costs
from smoothheads.studies.experiments import EXPERIMENTS, Experiment, PublishedRow, Scale, published_table
from smoothheads.studies.results import GapCurve, NetworkSize, RowFacts, Stack, StudyResults, StudyRow
from smoothheads.studies.tables import class_table, classes_certified
from smoothheads.studies.tables import costs as cost_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from smoothheads.studies.run import StudyRun

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
"""The axis of each figure, the structure that the others are compared with, and its curves."""
_LABELS = {"share": "share of the layers in a head (%)", "L": "heads", "sigma": "sigma"}
_COUNTED: dict[str, tuple[Callable[[NetworkSize], float], str, str]] = {
    "share": (lambda size: 100 * size.head_fraction, ".0f", ".0f"),
    "params": (lambda size: size.params, ",.0f", ",.0f"),
    "gflops": (lambda size: size.gmacs_paper, ".4f", ".3f"),
}
"""Columns that are counted in the networks here, which are smaller at other scales: the number, and how it is
formatted here and in print."""
_MEANINGS = {
    "share": "share: of the layers that one head has (%).",
    "gflops": "gflops: as the paper counts them: multiply-accumulates for one image, with biases, BatchNorm, "
    "ReLU and pooling.",
}


# Running


def start(
    chosen: Sequence[Experiment],
    scale: Scale,
    *,
    store: Path | str = "runs",
    out: Path | None = None,
    root: str | None = None,
    on_note: Callable[[str], None] = lambda _: None,
) -> StudyRun | None:
    """Plans experiments as one run, so that what they share is made once; None if none of them trains.

    Args:
        scale: What is smaller than in the paper.
        out: A folder that gets a folder of results for every experiment.
    """
    from smoothheads.studies import run

    studies = {each.id: experiments.study(each, scale, root) for each in chosen if each.trained}
    folders = {} if out is None else {name: out / name for name in studies}
    return run.start(studies, store, folders, on_note) if studies else None


def finish(run: StudyRun, found: dict[str, StudyResults], scale: Scale) -> dict[str, StudyResults]:
    """Returns the results of a run with the curves of fig2, which are measured on its networks.

    Curves that were exported with the rows of these networks are not measured again, as the networks may be
    gone.
    """
    from smoothheads.studies import diagnoses

    if "fig2" not in found:
        return found
    plan, folder = run.plans["fig2"], run.folders.get("fig2")
    saved: Mapping[str, GapCurve] = {}
    if folder is not None and (folder / results.STUDY_FILE).is_file():
        saved = results.load(folder).gaps
    shown = diagnoses.shown_rows(found["fig2"].certified)
    if not diagnoses.is_measured(saved, shown, scale.draws):
        saved = diagnoses.measure_gaps(plan, run.store, scale.draws) or saved
    if missing := [row.arm for row in diagnoses.shown_rows(plan.rows) if row.arm not in saved]:
        run.on_note(f"fig2: its figure lacks {', '.join(missing)}, of which the store has no network.")
    return {**found, "fig2": replace(found["fig2"], gaps=dict(saved))}


# Saving and loading


def save_all(found: Mapping[str, StudyResults], folder: Path) -> None:
    """Writes a folder of results with a page and a figure for every experiment that has rows."""
    from smoothheads.studies.figures import write
    from smoothheads.studies.page import write_study_page

    for name, study in found.items():
        if study.rows:
            results.save(study, folder / name)
            write_study_page(study, folder / name)
            write(figure(experiments.get(name), study), folder / name, name)


def is_saved(experiment: Experiment, folder: Path) -> bool:
    """Returns whether a folder that `save_all` wrote has results of the experiment."""
    costs = experiment.kind == "cost" and (folder / cost_tables.FILE).is_file()
    return costs or (folder / experiment.id / results.STUDY_FILE).is_file()


def load_saved(experiment: Experiment, folder: Path) -> StudyResults:
    """Returns the saved results of an experiment; a cost table may have costs alone."""
    has_rows = (folder / experiment.id / results.STUDY_FILE).is_file()
    if not has_rows and (experiment.kind == "cost" or not experiment.trained):
        return empty(experiment)
    return results.load(folder / experiment.id)


def empty(experiment: Experiment) -> StudyResults:
    """Returns an experiment of which nothing has been measured."""
    return StudyResults(
        name=experiment.id,
        title=f"{experiment.id}: {experiment.title}",
        arms={row.arm: row.arm for row in experiment.rows},
        radii=experiment.radii,
    )


# Tables


def listing() -> Table:
    """Returns all experiments with the claims that they answer."""
    from smoothheads.studies.claims import of_experiment

    rows = [
        (
            *map(word, (each.id, each.kind, each.title)),
            Cell(" ".join(claim.id for claim in of_experiment(each.id)) or "–"),
        )
        for each in EXPERIMENTS.values()
    ]
    return Table("Experiments of the SOME paper", ("id", "kind", "what", "claims"), tuple(rows))


def all_tables(experiment: Experiment, study: StudyResults, costs: Costs | None) -> list[Table]:
    """Returns everything that is known of an experiment: rows, gaps, costs and claims.

    Args:
        costs: What was measured for cost tables, on which claims of other tables rest too.
    """
    from smoothheads.studies import claims, diagnoses

    if not experiment.rows:
        return [published_table(experiment)]
    shown = [comparison(experiment, study)] if experiment.trained else []
    if any(row.facts.imported is not None for row in study.certified):
        shown.append(class_table(study))
    if study.gaps:
        shown.append(diagnoses.gap_table(study))
    if experiment.kind == "cost" and costs is not None:
        shown.append(cost_tables.table(experiment.id, costs))
    if any(row.facts.imported is None for row in study.certified):
        shown.append(cost_table(study))
    if claims.of_experiment(experiment.id):
        shown.append(claims.table(experiment.id, study, costs.ratios() if costs else None))
    return shown


def comparison(experiment: Experiment, study: StudyResults, *, complete: bool = True) -> Table:
    """Returns every published row with what was measured here; the published number stands in brackets.

    Args:
        complete: If not, only measured rows are shown, up to the largest radius with certified accuracy.
    """
    shown, radii = experiment.rows, experiment.radii
    if not complete:
        shown = tuple(row for row in shown if study.arm("", row.sigma, row.arm))
        # Rows and radii of which nothing is certified, here and in print, say nothing.
        certified = [
            r
            for row, r in itertools.product(shown, radii)
            if study.arm("", row.sigma, row.arm).certified_accuracy(r) or row.number(f"ca_{r:.2f}")
        ]
        radii = tuple(radius for radius in radii if radius <= max(certified, default=0.0))
    # The columns are those of the paper: counts of the network, then certified accuracy at its radii.
    left_out = len(experiment.rows) - len(shown)
    columns = {name for row in experiment.rows for name in row.values}
    at_radii = [f"{r:.2f}" for r in radii if f"ca_{r:.2f}" in columns]
    extra = [
        name
        for name in experiment.rows[0].values
        if name in (*_COUNTED, "L", "draws") and any(row.values[name] for row in experiment.rows)
    ]
    return Table(
        title=study.title,
        columns=("base structure", "sigma", *extra, "seeds", "ACR", "classes", *at_radii),
        rows=tuple(_row(row, study, extra, at_radii) for row in shown),
        notes=(
            "In brackets: published. ± is the standard error over seeds where there are several, else over "
            "images. What compares between scales is the sign of a difference, not the radii.",
            *(meaning for name, meaning in _MEANINGS.items() if name in extra),
            CLASSES,
            *([f"The paper has {left_out} rows more, which were not measured here."] if left_out else []),
            *import_notes(study),
            *(f"failed: {name}: {message}" for name, message in study.failed.items()),
        ),
    )


def _row(
    row: PublishedRow, study: StudyResults, extra: Sequence[str], radii: Sequence[str]
) -> tuple[Cell, ...]:
    """Returns a row of the comparison, with the published numbers beside ours."""

    def with_published(cell: Cell, column: str, form: str) -> Cell:
        published = row.number(column)
        return (
            cell if published is None else replace(cell, error=f"({published:{form}})", published=published)
        )

    stack = study.arm("", row.sigma, row.arm)
    cells = [word(row.arm), number(row.sigma, ".2f")]
    # Counts are those of the networks here; the number of heads and of draws is that of the paper.
    for name in extra:
        if name in _COUNTED:
            count, here, in_print = _COUNTED[name]
            cells.append(
                with_published(number(count(stack.size) if stack.size else None, here), name, in_print)
            )
        else:
            cells.append(word(row.values[name]))
    if not stack:
        state = "failed" if study.has_failed("", row.sigma, row.arm) else "–"
        nothing = (with_published(NONE, f"ca_{r}", ".1f") for r in radii)
        return (*cells, Cell(state, 0), with_published(NONE, "acr", ".3f"), NONE, *nothing)
    acr, error = stack.acr
    return (
        *cells,
        number(len(stack), "d"),
        with_published(Cell(f"{acr:.3f}±{error:.3f}", acr, standard_error=error), "acr", ".3f"),
        classes_certified(stack),
        *(with_published(number(stack.certified_accuracy(float(r)), ".1f"), f"ca_{r}", ".1f") for r in radii),
    )


# Figures


def figure(experiment: Experiment, study: StudyResults) -> Figure | None:
    """Returns the paper's figure of what was measured; None if it has none, or nothing was measured."""
    from smoothheads.studies import claims, diagnoses, figures

    if study.gaps:
        return diagnoses.gap_figure(study.gaps)
    if experiment.id not in _AXES or not study.certified:
        return None
    # Every row is a point of its family's curve: at its sigma, at its printed number, or at what the network
    # here has instead, which may be smaller than the paper's.
    axis, baseline, families = _AXES[experiment.id]
    one_sigma = len({row.sigma for row in experiment.rows}) == 1
    series: dict[str, dict[float, figures.CurvePoint]] = {}
    for row, (family, structures) in itertools.product(experiment.rows, families.items()):
        stack = study.arm("", row.sigma, row.arm)
        if row.structure not in structures or not stack:
            continue
        name = family if axis == "sigma" or one_sigma else f"{family}, sigma {row.sigma:g}"
        counted = _COUNTED[axis][0](stack.size) if axis in _COUNTED and stack.size else None
        x = row.sigma if axis == "sigma" else float(row.values[axis]) if counted is None else counted
        other = Stack() if row.structure == baseline else study.arm("", row.sigma, f"{row.base} {baseline}")
        series.setdefault(name, {})[x] = figures.CurvePoint(stack, other)
    if all(len(points) == 1 for points in series.values()):  # no curve goes through one point
        return claims.figure({experiment.id: study}) or figures.acr_figure(study)
    # Figure 3 shows the ensemble as a level to compare with.
    if experiment.id != "fig3":
        return figures.curves(_LABELS[axis], series, baseline)
    ensembles = [study.arm("", sigma, "gaussian dnn5") for _, sigma in study.groups()]
    levels = [stack.acr.value for stack in ensembles if stack]
    return figures.curves(_LABELS[axis], series, baseline, levels, "5 DNNs")


# Logs of others

_LOG_NAMES = (
    r"(?P<base>[a-z]+)/(?P<structure>[\w-]+)/(?P<sigma>\d+(\.\d+)?)=.*",
    r"(.*/)?cifar10-(?P<base>[a-z]+)-(?P<sigma>\d+(\.\d+)?)\.tsv",
    r"(.*/)?(?P<structure>[\w-]+)/(?P<base>[a-z]+)-(?P<sigma>\d+(\.\d+)?)\.(tsv|txt|log)",
)
"""How the name of a log tells base, structure and sigma: stated, as eth-sri/acr-weakness names the logs of
single networks, and as a folder per structure."""


def read_logs(paths: Sequence[str], on_note: Callable[[str], None] = lambda _: None) -> list[StudyRow]:
    """Reads logs of others as rows; several logs of one row are its seeds, in their order.

    A path names base method, structure and sigma: some/gaussian-0.25.tsv, a file of eth-sri/acr-weakness
    (cifar10-gaussian-0.25.tsv, a single network), or BASE/STRUCTURE/SIGMA=PATH. In a folder, logs whose names
    do not tell are left out.
    """
    rows: list[StudyRow] = []
    for text in paths:
        folder = Path(text)
        # A folder of logs, or one log: a file, or the folder of a ledger.
        is_folder = folder.is_dir() and not (folder / MANIFEST).is_file()
        inside = sorted(map(str, folder.rglob("*.tsv"))) if is_folder else [text]
        named = {path: name for path in inside if (name := _parse_name(path)) is not None}
        if is_folder and len(named) < len(inside):
            on_note(f"{len(inside) - len(named)} logs in {folder} name no row of the paper and are left out.")
        if not named:
            raise ConfigError(
                f"{folder} has no certification logs (.tsv) that name base, structure and sigma."
                if is_folder
                else f"The path {text!r} does not name base, structure and sigma, as some/gaussian-0.25.tsv "
                "does; write BASE/STRUCTURE/SIGMA=PATH, for example gaussian/single/0.25=log.tsv."
            )
        for path, (base, structure, sigma) in named.items():
            arm, file = f"{base} {structure}", Path(path.rpartition("=")[2])
            log = replace(read_log(file), sigma=sigma)
            # A log that does not state n and alpha reveals them by its largest radii.
            best = best_fit(infer_settings(log, sigma)) if log.alpha is None else None
            if best is not None:
                log = replace(log, n=best.settings.n, alpha=best.settings.alpha)
            # Several logs of one row are seeds, and seeds are of the same images.
            before = [row for row in rows if (row.arm, row.sigma) == (arm, sigma)]
            if any(not np.array_equal(row.log.index, log.index) for row in before):
                raise ConfigError(
                    f"{file} has other images than the log before it of {arm}; name one of them."
                )
            rows.append(StudyRow("", sigma, arm, len(before), log, RowFacts(imported=file.name)))
    return rows


def with_imports(
    found: Mapping[str, StudyResults],
    logs: Sequence[StudyRow],
    on_note: Callable[[str], None] = lambda _: None,
) -> dict[str, StudyResults]:
    """Returns experiments with the logs in place of their own rows, on the images that all logs have.

    Raises ConfigError if no log is a row of any experiment, and LedgerError if two logs give an image
    different labels.
    """
    # Keep the logs that are a row of one of the experiments.
    rows = {name: {(row.sigma, row.arm) for row in EXPERIMENTS[name].rows} for name in found}
    known = [log for log in logs if any((log.sigma, log.arm) in has for has in rows.values())]
    if not known:
        raise ConfigError(
            f"None of the logs is a row of {' or '.join(found)} "
            f"({', '.join(f'{log.arm} at sigma {log.sigma:g}' for log in logs)}); "
            "`smoothheads paper EXPERIMENT --published` shows the rows."
        )
    for log in logs:
        if log not in known:
            on_note(f"{log.arm} at sigma {log.sigma:g} is no row of {', '.join(found)}: left out")
    # On the images that all of them have, they take the place of our own rows, since the two are no pairs.
    joined = {}
    for name, study in found.items():
        added = [log for log in known if (log.sigma, log.arm) in rows[name]]
        if added:
            check_labels_agree([log.log for log in added])
            aligned = align_logs([log.log for log in added], notes=[])
            added = [replace(row, results=log) for row, log in zip(added, aligned, strict=True)]
        replaced = {(log.sigma, log.arm) for log in added}
        own = [row for row in study.rows if (row.sigma, row.arm) not in replaced]
        arms = {**study.arms, **{log.arm: log.arm for log in added}}
        joined[name] = replace(study, rows=(*own, *added), arms=arms)
    return joined


def import_notes(study: StudyResults) -> list[str]:
    """Returns what a reader should know of imported logs: images, settings, and what they cannot tell."""
    logs = [row for row in study.certified if row.facts.imported is not None]
    if not logs:
        return []
    # Group the logs by their settings; most have the same.
    settings: dict[str, list[str]] = {}
    for row in logs:
        known = row.log.alpha is not None
        text = f"n = {row.log.n:,}, alpha = {row.log.alpha:g}" if known else "settings unknown"
        settings.setdefault(text, []).append(f"{row.arm} {row.sigma:g}")
    usual, *others = sorted(settings.items(), key=lambda item: -len(item[1]))
    return [
        f"Logs of others, on the {len(logs[0].log):,} images that all of them have ({usual[0]}, by their "
        "largest radii). One training each: intervals are over images alone and say nothing of other "
        "trainings; where two groups trained the networks, a difference includes that of their codes.",
        *(
            f"Certified otherwise ({text}), so not compared with the rest: {', '.join(names)}."
            for text, names in others
        ),
    ]


def _parse_name(text: str) -> tuple[str, str, float] | None:
    """Returns base, structure and sigma of a log; None unless they are a row of the paper."""
    rows = {(row.base, row.structure, row.sigma) for each in EXPERIMENTS.values() for row in each.rows}
    for pattern in _LOG_NAMES:
        if found := re.fullmatch(pattern, text.replace("\\", "/")):
            parts = {"structure": "single", **found.groupdict()}
            name = parts["base"], parts["structure"], float(parts["sigma"])
            return name if name in rows else None
    return None
