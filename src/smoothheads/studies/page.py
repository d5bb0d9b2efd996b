"""Two pages of results: one study as self-contained HTML, and the paper's experiments as Markdown.

The Markdown page (`docs/paper-small.md`) is made from a folder of saved results alone: one folder per
experiment or study (as `--out` writes them), `costs.json` if costs were measured, and what people wrote:
`findings.md`, and `protocol.md` from before any test image was certified.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from smoothheads.config import leaves, to_dict
from smoothheads.files import reserve_file, write_stamped
from smoothheads.report import plots
from smoothheads.report.html import document, header, list_html, plot_html, section, table_html
from smoothheads.report.table import Cell, Table, to_markdown
from smoothheads.studies import claims, costs, figures, paper, tables
from smoothheads.studies.diagnoses import gap_table
from smoothheads.studies.experiments import EXPERIMENTS
from smoothheads.studies.results import STUDY_FILE, StudyResults, load
from smoothheads.studies.statistics import gains

MADE_BY = "Made by `smoothheads paper"
FINDINGS, PROTOCOL = "findings.md", "protocol.md"


def write_study_page(study: StudyResults, folder: Path) -> Path:
    """Writes a study as one page of HTML into a folder."""
    path = folder / "index.html"
    write_stamped(path, study_page(study))
    return path


def study_page(study: StudyResults) -> str:
    """Returns HTML that needs no other file; all text that came from files is escaped."""
    gains_figure = figures.gains_figure(study)
    seeds = ", ".join(str(seed) for seed in sorted({row.seed for row in study.rows}))
    images = " / ".join(f"{count:,}" for count in sorted({len(row.log) for row in study.certified})) or "no"
    lead = f"{len(study.certified)} of {len(study.rows)} networks · seeds {seeds} · {images} images each"
    # In words: what every arm gains on its baseline.
    words = {"confirmed": "certifies more than", "contradicted": "certifies less than"}
    verdicts = [
        f"{' '.join(filter(None, (setting, f'sigma {sigma:g}')))}: {study.arms[this]} "
        f"{words.get(gain.verdict, 'cannot be told from')} {study.arms[baseline]}: "
        f"{gain.value:+.3f} in ACR (95 %: {gain.interval.low:+.3f} to {gain.interval.high:+.3f}, over "
        + ("images of one seed)." if gain.seeds is None else f"images and {len(gain.per_seed)} seeds).")
        for setting, sigma, this, baseline, gain in gains(study)
    ]
    acr = "A point for every seed, and 95 % intervals over seeds and images."
    shown = plot_html(figures.acr_figure(study), "acr", acr) if study.certified else ""
    gained = (
        plot_html(gains_figure, "gains", "What each arm gains, with its 95 % interval.")
        if gains_figure
        else ""
    )
    # Where it comes from: every setting of the certification and every version.
    settings = {"certification": _certification(study), "made by": study.made_by}
    origin = tuple((Cell(key), Cell(str(value))) for key, value in leaves(settings))
    return document(
        study.title,
        [
            header(study.title, lead),
            list_html(verdicts or ["Nothing can be compared yet."], "verdict"),
            section("Average certified radius", table_html(tables.headline(study)), shown),
            section("Gains", table_html(tables.differences(study)), gained),
            section("Cost", table_html(tables.costs(study))),
            section("Where the numbers come from", table_html(Table("Settings", ("what", "value"), origin))),
        ],
    )


def load_all(folder: Path) -> dict[str, StudyResults]:
    """Returns every saved experiment and study in a folder, by the name of its own folder."""
    return {path.parent.name: load(path.parent) for path in sorted(folder.glob(f"*/{STUDY_FILE}"))}


def write_page(folder: Path, path: Path) -> list[Path]:
    """Writes what is saved in the folder as one Markdown page, and next to it a figure of all claims.

    Raises StorageError, before anything is written, if another file lies at either place.
    """
    studies, picture = load_all(folder), path.with_suffix(".svg")
    figure = claims.figure(studies)
    text = _page(folder, studies, path, picture if figure else None)
    reserve_file(path, MADE_BY)
    if figure is not None:
        plots.save(figure, picture)
    write_stamped(path, text, MADE_BY)
    return [path] if figure is None else [path, picture]


def _page(folder: Path, studies: Mapping[str, StudyResults], path: Path, picture: Path | None) -> str:
    """Returns Markdown for the file at `path`; only findings and protocol were written by hand."""
    measured, parent = costs.load(folder), path.parent
    ratios = measured.ratios() if measured else {}
    parts = [
        "# The paper's experiments at a small scale",
        f"{MADE_BY} all --from {folder} --page {path.as_posix()}`; every number in tables and pictures "
        "follows from the files in that folder, without training.",
        *_text_of(folder / FINDINGS),
        "## All claims",
    ]
    if picture is not None:
        parts += [
            f"![every claim about radii]({picture.name})",
            "Gains in ACR that the claims are about, with a point for every seed: blue confirmed, orange "
            "contradicted, grey undecided, open where there is one seed.",
        ]
    parts.append(to_markdown(claims.summary(studies, ratios)).partition("\n\n")[2])
    parts += _text_of(folder / PROTOCOL)
    # Our own studies, each with its settings and all of its tables.
    for name, study in studies.items():
        if name in EXPERIMENTS:
            continue
        seeds = ", ".join(map(str, sorted({row.seed for row in study.rows})))
        certify = [f"{key} {value}" for key, value in leaves(_certification(study)) if value is not None]
        parts += [
            f"## {name}: {study.title}",
            f"`smoothheads study {folder / name}.toml --from {folder / name}`",
            f"{len(study.certified)} of {len(study.rows)} rows are measured (settings: "
            f"{len({row.setting for row in study.rows})}, arms: {len(study.arms)}, seeds: {seeds}). "
            f"Certification: {', '.join(certify)}.",
            *_link_to(folder / name / "gains.svg", parent),
            *(to_markdown(table) for table in (*tables.all_tables(study), tables.costs(study))),
        ]
    # Experiments with what was measured of them: rows, gaps, costs, and the claims that they answer.
    for name, experiment in EXPERIMENTS.items():
        compared = [costs.table(name, measured)] if measured and experiment.kind == "cost" else []
        if name not in studies and not compared:
            continue
        study = studies.get(name) or paper.empty(experiment)
        parts += [f"## {name}: {experiment.title}", f"`smoothheads paper {name} --from {folder}`"]
        if study.certified:
            parts.append(to_markdown(paper.comparison(experiment, study, complete=False)))
            parts += _link_to(folder / name / f"{name}.svg", parent)
        if study.gaps:
            parts.append(to_markdown(gap_table(study)))
        parts += map(to_markdown, compared)
        parts.append(to_markdown(claims.table(name, study, ratios)))
    return "\n\n".join(parts) + "\n"


def _certification(study: StudyResults) -> dict[str, object]:
    """Returns the settings that all rows share, in the order of their names."""
    images = {} if study.images is None else {"images": to_dict(study.images)}
    return dict(sorted({**study.certify, **images}.items()))


def _text_of(path: Path) -> list[str]:
    return [path.read_text(encoding="utf-8").strip()] if path.is_file() else []


def _link_to(path: Path, parent: Path) -> list[str]:
    return [f"![{path.stem}]({Path(os.path.relpath(path, parent)).as_posix()})"] if path.is_file() else []
