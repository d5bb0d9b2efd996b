"""A study as one self-contained page, in the look of the report: what it found in words, tables, figures."""

from __future__ import annotations

from pathlib import Path

from smoothheads.config import leaves
from smoothheads.files import write_stamped
from smoothheads.report.html import document, header, list_html, plot_html, section, table_html
from smoothheads.report.table import Cell, Table
from smoothheads.studies import figures, tables
from smoothheads.studies.outcome import Outcome, measured
from smoothheads.studies.statistics import Gain


def write_page(outcome: Outcome, folder: Path) -> Path:
    path = folder / "index.html"
    write_stamped(path, page(outcome))
    return path


def page(outcome: Outcome) -> str:
    """HTML that needs nothing else; all text that came from files is escaped."""
    gains = figures.gains_figure(outcome)
    return document(
        outcome.title,
        [
            header(outcome.title, _lead(outcome)),
            list_html(_verdicts(outcome), "verdict"),
            section(
                "Average certified radius",
                table_html(tables.headline(outcome)),
                plot_html(
                    figures.acr(outcome),
                    "acr",
                    "A point for every seed, and 95 % intervals over seeds and images.",
                )
                if measured(outcome.results)
                else "",
            ),
            section(
                "Gains",
                table_html(tables.differences(outcome)),
                plot_html(gains, "gains", "What each arm gains, with its 95 % interval.") if gains else "",
            ),
            section("Cost", table_html(tables.costs(outcome))),
            section("Where the numbers come from", table_html(_settings(outcome))),
        ],
    )


def _lead(outcome: Outcome) -> str:
    done = measured(outcome.results)
    seeds = ", ".join(str(seed) for seed in sorted({each.seed for each in outcome.results}))
    images = {len(each.index) for each in done}
    counted = " / ".join(f"{count:,}" for count in sorted(images)) or "no"
    return f"{len(done)} of {len(outcome.results)} networks · seeds {seeds} · {counted} images each"


def _verdicts(outcome: Outcome) -> list[str]:
    found = [
        f"{' '.join(filter(None, (setting, f'sigma {sigma:g}')))}: {outcome.arms[this]} "
        f"{_said(gain)} {outcome.arms[baseline]}: {gain.value:+.3f} in ACR (95 %: "
        f"{gain.interval.low:+.3f} to {gain.interval.high:+.3f}, over "
        + ("images of one seed)." if gain.seeds is None else f"images and {len(gain.per_seed)} seeds).")
        for setting, sigma, this, baseline, gain in tables.gains(outcome)
    ]
    return found or ["Nothing can be compared yet."]


def _said(gain: Gain) -> str:
    words = {"confirmed": "certifies more than", "contradicted": "certifies less than"}
    return words.get(gain.verdict, "cannot be told from")


def _settings(outcome: Outcome) -> Table:
    known = {"certification": dict(outcome.certify), "made by": dict(outcome.made_by)}
    rows = tuple((Cell(key), Cell(str(value))) for key, value in leaves(known))
    return Table(title="Settings", columns=("what", "value"), rows=rows)
