"""smoothheads report LEDGER..."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from smoothheads.cli.common import parse, print_json, say

if TYPE_CHECKING:
    from smoothheads.report.html import Gallery
    from smoothheads.results.compare import Comparison

DESCRIPTION = """Average certified radius, certified accuracy at radii, abstentions and cost, each with its
standard error; with several logs also the paired differences from the first one.

Reads our ledgers and anybody's log in the field's format (idx label predict radius correct time)."""


@dataclass(frozen=True, kw_only=True)
class Report:
    logs: tyro.conf.Positional[tuple[Path, ...]]
    """Ledger folders or log files; the first is the baseline of the differences."""
    radii: tuple[float, ...] | None = None
    """Radii of the table (default: steps of a quarter)."""
    align: bool = False
    """Compare logs with different images or settings on the images they share."""
    format: Literal["text", "markdown", "latex"] = "text"
    out: Path | None = None
    """Folder for report.html and the plots as PNG."""
    title: str = "Certified robustness"
    json: bool = False
    """Print the tables as JSON."""


def main(arguments: list[str]) -> None:
    run(read_arguments(arguments, "report", DESCRIPTION))


def read_arguments(arguments: list[str], prog: str, description: str) -> Report:
    return parse(Report, arguments or ["--help"], default=Report(logs=()), prog=prog, description=description)


def run(args: Report) -> None:
    comparison = show(args.logs, args.radii, align=args.align, form=args.format, as_json=args.json)
    if args.out is not None:
        for path in write(comparison, args.out, args.title):
            say(f"wrote {path}")


def show(
    paths: Sequence[Path],
    radii: Sequence[float] | None = None,
    *,
    align: bool = False,
    form: Literal["text", "markdown", "latex"] = "text",
    as_json: bool = False,
) -> Comparison:
    """Prints the tables of the logs and gives back what they were made from."""
    from smoothheads.report import table, tables
    from smoothheads.results.cohen import read_logs
    from smoothheads.results.compare import compare

    comparison = compare(read_logs(paths), radii, align=align)
    found = tables.all_tables(comparison)
    if as_json:
        print_json([table.to_json(each) for each in found])
    else:
        render = {"text": table.to_text, "markdown": table.to_markdown, "latex": table.to_latex}[form]
        print("\n\n".join(render(each) for each in found))
    return comparison


def write(comparison: Comparison, folder: Path, title: str, gallery: Gallery = ()) -> list[Path]:
    """The page and the plots; what they are is said by their names."""
    from smoothheads.report import plots
    from smoothheads.report.html import write_page

    page, curves = folder / "report.html", folder / "certified-accuracy.png"
    probabilities = folder / "label-probability.png"
    write_page(page, comparison, title=title, gallery=gallery)
    plots.save(plots.certified_accuracy(comparison.logs), curves)
    plots.save(plots.label_probability(comparison.logs), probabilities)
    return [page, curves, probabilities]
