"""The page that reports what was measured, made from a folder of kept results alone.

The folder holds one folder per experiment or study (as `--out` writes them), `costs.json` if costs were
measured, and what people wrote: `findings.md`, what it all says, and `protocol.md`, how it was to be done,
from before any test image was certified.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from smoothheads.config import leaves
from smoothheads.files import reserve_file, write_stamped
from smoothheads.report import plots
from smoothheads.report.table import Table, to_markdown
from smoothheads.studies import claims, costs, gaps, paper, tables
from smoothheads.studies.experiments import EXPERIMENTS
from smoothheads.studies.figures import claims_figure
from smoothheads.studies.outcome import FACTS, Outcome, load

MADE_BY = "Made by `smoothheads paper"
FINDINGS, PROTOCOL = "findings.md", "protocol.md"


def outcomes(folder: Path) -> dict[str, Outcome]:
    """Every kept experiment and study, by the name of its folder."""
    return {path.parent.name: load(path.parent) for path in sorted(folder.glob(f"*/{FACTS}"))}


def write_page(folder: Path, path: Path) -> list[Path]:
    """What is kept in the folder as one page, and beside it a picture of all claims.

    Raises StorageError where something else lies at either place; then nothing is written.
    """
    found, picture = outcomes(folder), path.with_suffix(".svg")
    drawn = claims_figure(found)
    text = _page(folder, found, path.parent, picture if drawn else None)
    reserve_file(path, MADE_BY)
    if drawn is not None:
        plots.save(drawn, picture)
    write_stamped(path, text, MADE_BY)
    return [path] if drawn is None else [path, picture]


def _page(folder: Path, found: Mapping[str, Outcome], beside: Path, picture: Path | None) -> str:
    """Markdown for a file in the folder `beside`; only the findings and the protocol were written by hand."""
    measured = costs.load(folder)
    ratios = measured.ratios() if measured else {}
    parts = [
        "# The paper's experiments, measured here",
        f"{MADE_BY} all --from {folder} --page docs/paper.md`; every number in tables and pictures "
        "follows from the files in that folder, without training.",
        *_written(folder / FINDINGS),
        "## All claims",
    ]
    if picture is not None:
        parts += [
            f"![every claim about radii]({picture.name})",
            "Gains in ACR that the claims are about, with a point for every seed: blue confirmed, orange "
            "contradicted, grey undecided, open where there is one seed.",
        ]
    parts.append(_body(claims.summary(found, ratios)))
    parts += _written(folder / PROTOCOL)
    parts += [_study(folder, beside, name, found[name]) for name in found if name not in EXPERIMENTS]
    for name, experiment in EXPERIMENTS.items():
        outcome = found.get(name)
        compared = [costs.table(name, measured)] if measured and experiment.kind == "cost" else []
        if outcome is not None or compared:
            shown = [f"## {name}: {experiment.title}", f"`smoothheads paper {name} --from {folder}`"]
            if outcome is not None and any(each.measured for each in outcome.results):
                shown += [
                    to_markdown(paper.comparison(experiment, outcome, whole=False)),
                    *_picture(folder / name / f"{name}.svg", beside),
                ]
            if outcome is not None and outcome.extra.get("gaps"):
                shown.append(to_markdown(gaps.table(outcome.extra["gaps"])))
            shown += map(to_markdown, compared)
            shown.append(to_markdown(claims.table(name, outcome or paper.empty(experiment), ratios)))
            parts.append("\n\n".join(shown))
    return "\n\n".join(parts) + "\n"


def _study(folder: Path, beside: Path, name: str, outcome: Outcome) -> str:
    picture = folder / name / "gains.svg"
    body = [to_markdown(table) for table in (*tables.all_tables(outcome), tables.costs(outcome))]
    command = f"`smoothheads study {folder / name}.toml --from {folder / name}`"
    return "\n\n".join(
        [f"## {name}: {outcome.title}", command, _settings(outcome), *_picture(picture, beside), *body]
    )


def _settings(outcome: Outcome) -> str:
    settings = {each.setting for each in outcome.results}
    seeds = sorted({each.seed for each in outcome.results})
    done = sum(each.measured is not None for each in outcome.results)
    certify = [f"{key} {value}" for key, value in leaves(dict(outcome.certify)) if value is not None]
    return (
        f"{done} of {len(outcome.results)} rows are measured (settings: {len(settings)}, arms: "
        f"{len(outcome.arms)}, seeds: {', '.join(map(str, seeds))}). Certification: {', '.join(certify)}."
    )


def _written(path: Path) -> list[str]:
    return [path.read_text(encoding="utf-8").strip()] if path.is_file() else []


def _picture(path: Path, beside: Path) -> list[str]:
    return [f"![{path.stem}]({Path(os.path.relpath(path, beside)).as_posix()})"] if path.is_file() else []


def _body(table: Table) -> str:
    return to_markdown(table).partition("\n\n")[2]
