"""Certification logs, studies and training runs as plain data for the page."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smoothheads.errors import SmoothheadsError
from smoothheads.report import tables
from smoothheads.report.table import Cell, Table, number, to_csv, to_latex, word
from smoothheads.results import ledger, metrics
from smoothheads.results.compare import compare
from smoothheads.results.results import Results
from smoothheads.runs.models import METRICS
from smoothheads.studies import tables as study_tables
from smoothheads.studies.results import StudyResults

POINTS = 200
CURVE = ("radii", "accuracy", "low", "high")
MOST_DIFFERENT = 200
WRITTEN = 2e-6  # radii are written with six decimals, rounded down
LIVE = 60.0
"""Seconds after its last change in which an unfinished run counts as going on."""


def stamp(path: Path) -> tuple[int, int]:
    """Returns time and size of a log, which change when it does; (0, 0) when it is gone."""
    try:
        status = (path / ledger.TABLE if path.is_dir() else path).stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def is_live(path: Path) -> bool:
    """Returns whether a log has changed a moment ago."""
    return time.time() - stamp(path)[0] / 1e9 < LIVE


def row(name: str, path: Path, read: Callable[[Path], Results]) -> dict[str, Any]:
    """Returns one line of the list of ledgers."""
    try:
        log = read(path)
    except SmoothheadsError as error:
        return {"id": name, "error": str(error), "live": is_live(path)}
    acr, error_of_acr = metrics.mean(log.certified_radius)
    return {
        "id": name,
        "images": len(log),
        "expected": len(log) + log.missing,
        "live": log.missing > 0 and is_live(path),
        "data": data_name(log),
        "sigma": log.sigma,
        "n": log.n,
        "alpha": log.alpha,
        "norm": log.norm,
        "budget": log.manifest and log.budget,
        "acr": {"value": acr, "standard_error": None if math.isnan(error_of_acr) else error_of_acr},
        "accuracy": float(log.correct.mean()),
        "abstained": float(log.abstained.mean()),
        "changed": stamp(path)[0] / 1e9,
    }


def curves(logs: Sequence[Results]) -> dict[str, Any]:
    """Returns certified accuracy over the radius with 95 % intervals, and the tables of `report`."""
    drawn = [{"id": log.name, "images": len(log), "norm": log.norm} | _curve(log) for log in logs]
    answer: dict[str, Any] = {"curves": drawn}
    try:
        comparison = compare(logs, align=True)  # on the images that all of them hold
        shown = [_table(table) for table in (*tables.all_tables(comparison), per_class(comparison.logs))]
        return answer | {"tables": shown, "notes": list(comparison.notes)}
    except SmoothheadsError as error:
        return answer | {"tables": [], "notes": [str(error)]}


def per_class(logs: Sequence[Results]) -> Table:
    """Returns the certified accuracy and the ACR of every class, one row per class."""
    columns = ["class", "images"]
    for log in logs:
        columns += [f"{log.name}: certified (%)", f"{log.name}: ACR"]
    measured = [(log.class_certified_accuracy(), log.class_acr) for log in logs]
    rows = []
    for label, count in zip(*np.unique(logs[0].label, return_counts=True), strict=True):
        cells = [Cell(_class(logs[0], label)), number(int(count), "d")]
        for certified, acr in measured:
            cells += [number(certified[label], ".0f", 100), number(acr[label], ".3f")]
        rows.append(tuple(cells))
    return Table("Every class", tuple(columns), tuple(rows))


def different(logs: Sequence[Results]) -> dict[str, Any]:
    """Returns the paired difference of two logs, and the images on which they differ most."""
    comparison = compare(logs, align=True)
    first, second = comparison.logs
    gains = second.certified_radius - first.certified_radius
    # Radii are rounded when they are written: smaller gains are no gains.
    gains[np.abs(gains) < WRITTEN] = 0.0
    order = np.argsort(-np.abs(gains), kind="stable")
    apart = [int(i) for i in order if gains[i] != 0 or first.prediction[i] != second.prediction[i]]
    return {
        "tables": [_table(table) for table in tables.differences(comparison)],
        "notes": list(comparison.notes),
        "images": len(first),
        "gain": {"better": int((gains > 0).sum()), "worse": int((gains < 0).sum())},
        "differ": len(apart),
        "rows": [
            {
                "index": int(first.index[i]),
                "label": _class(first, int(first.label[i])),
                "first": _class(first, int(first.prediction[i])),
                "second": _class(second, int(second.prediction[i])),
                "first_radius": float(first.radius[i]),
                "second_radius": float(second.radius[i]),
                "gain": float(gains[i]),
            }
            for i in apart[:MOST_DIFFERENT]
        ],
    }


def image(log: Results, index: int) -> dict[str, Any] | None:
    """Returns all that a log knows of one image; None if it has not got it."""
    places = np.flatnonzero(log.index == index)
    if not len(places):
        return None
    place = int(places[0])
    facts: dict[str, Any] = {
        "index": index,
        "previous": int(log.index[place - 1]) if place else None,
        "next": int(log.index[place + 1]) if place + 1 < len(log) else None,
        "label": _class(log, int(log.label[place])),
        "prediction": _class(log, int(log.prediction[place])),
        "correct": bool(log.correct[place]),
        "abstained": bool(log.abstained[place]),
        "radius": float(log.radius[place]),
        "norm": log.norm,
        "seconds": float(log.seconds[place]),
        "sigma": log.sigma,
        "alpha": log.alpha,
    }
    # Logs of others have no votes.
    if not log.rows:
        return facts
    row = log.rows[place]
    certificate = row.certificate
    facts |= {name: getattr(certificate, name) for name in ("n0", "n", "k", "p_lower")}
    for name, votes in (("selection", row.selection), ("votes", row.votes)):
        if votes.n:
            facts[name] = [
                {"aggregation": aggregation, "counts": counts.tolist()}
                for aggregation, counts in zip(votes.aggregations, votes.counts, strict=True)
            ]
    return facts | {"classes": [_class(log, label) for label in range(row.votes.counts.shape[1])]}


def curves_file(logs: Sequence[Results], kind: str) -> bytes:
    """Returns the curves as png or csv, or their tables as tex."""
    if kind == "png":
        from smoothheads.report import plots

        return plots.render(plots.certified_accuracy(logs), "png")
    if kind == "tex":
        comparison = compare(logs, align=True)
        return _latex([tables.headline(comparison), *tables.differences(comparison)])
    rows = [
        (word(log.name), *(Cell("", value) for value in values))
        for log in logs
        for values in zip(*_curve(log).values(), strict=True)
    ]
    columns = ("log", "radius", "certified_accuracy", "low", "high")
    return to_csv(Table("", columns, tuple(rows))).encode()


def study(results: StudyResults) -> dict[str, Any]:
    """Returns the tables of a study."""
    shown = [_table(table) for table in study_tables.all_tables(results)]
    return {"title": results.title, "tables": shown}


def study_file(results: StudyResults, kind: str) -> bytes:
    """Returns the figure of a study as png, or its tables as csv or tex."""
    if kind == "png":
        from smoothheads.report import plots
        from smoothheads.studies import figures

        return plots.render(figures.acr_figure(results), "png")
    shown = study_tables.all_tables(results)
    return _latex(shown) if kind == "tex" else "\n".join(map(to_csv, shown)).encode()


def _latex(shown: Sequence[Table]) -> bytes:
    return ("\n\n".join(map(to_latex, shown)) + "\n").encode()


def training(name: str, folder: Path) -> dict[str, Any]:
    """Returns the last metrics of a training run, and whether it goes on."""
    lines: list[dict[str, Any]] = []
    path = folder / METRICS
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            lines.append(_numbers(json.loads(line)))
    except (OSError, ValueError, TypeError):
        pass  # a torn last line; a run that is just being cleared
    finished = (folder / "checkpoint").is_dir()
    return {
        "id": name,
        "finished": finished,
        "live": not finished and is_live(path),
        "epochs": len(lines),
        "last": lines[-1] if lines else {},
        "history": lines[-500:],
    }


def _numbers(line: Any) -> dict[str, Any]:
    if not isinstance(line, dict):
        raise ValueError("no metrics")
    held_out = line.get("validation")
    if isinstance(held_out, dict) and "accuracy" in held_out:
        line = line | {"validation_accuracy": held_out["accuracy"]}
    # Of values per head the mean is drawn.
    means = {key: sum(value) / len(value) for key, value in line.items() if isinstance(value, list) and value}
    numbers = {key: value for key, value in (line | means).items() if isinstance(value, int | float)}
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def _curve(log: Results) -> dict[str, list[float]]:
    """Returns certified accuracy at evenly spaced radii, with Clopper-Pearson intervals."""
    radii = np.linspace(0, float(log.radius.max()), POINTS + 1)
    accuracy = log.certified_accuracy(radii)
    columns = (radii, accuracy, *metrics.binomial_band(accuracy, len(log)))
    return {name: np.round(values, 6).tolist() for name, values in zip(CURVE, columns, strict=True)}


def _class(log: Results, label: int) -> str:
    return "abstains" if label < 0 else log.class_name(label)


def data_name(log: Results) -> str | None:
    return None if log.manifest is None or log.manifest.data is None else log.manifest.data.name


def _table(table: Table) -> dict[str, Any]:
    rows = [[{"text": c.text, "error": c.error, "best": c.best} for c in row] for row in table.rows]
    return {"title": table.title, "columns": list(table.columns), "rows": rows, "notes": list(table.notes)}
