"""smoothheads report LOG..."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from smoothheads.cli.common import parse, print_tables, say
from smoothheads.errors import ConfigError, printable

if TYPE_CHECKING:
    from smoothheads.results.compare import Comparison

DESCRIPTION = """Average certified radius, certified accuracy at radii, worst class, abstentions and cost,
each with its standard error or interval; with several logs also the paired differences from the first one.

Reads our ledgers and anybody's log in the field's format (idx label predict radius correct time)."""


@dataclass(frozen=True, kw_only=True)
class ReportArguments:
    logs: tyro.conf.Positional[tuple[Path, ...]]
    """Ledger folders, folders of runs or log files; the first is the baseline of the differences."""
    name: tuple[str, ...] = ()
    """LOG=LABEL: the name of a log in tables and plots."""
    radii: tuple[float, ...] | None = None
    """Radii of the table (default: steps of a quarter)."""
    align: bool = False
    """Compare logs with different images or settings on the images they share."""
    format: Literal["text", "markdown", "latex", "csv"] = "text"
    """How tables are printed."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for report.html and the plots as PNG."""
    title: str = "Certified robustness"
    """Title of the page."""
    json: bool = False
    """Print the tables as JSON."""


def main(arguments: list[str]) -> None:
    run(read_arguments(arguments, "report", DESCRIPTION))


def read_arguments(arguments: list[str], prog: str, description: str) -> ReportArguments:
    return parse(ReportArguments(logs=()), arguments or ["--help"], prog=prog, description=description)


def run(args: ReportArguments) -> None:
    from smoothheads.report import html

    if args.out is not None:
        html.reserve_report(args.out)
    names = {}
    for text in args.name:
        log, _, label = text.rpartition("=")
        if not label or Path(log) not in args.logs:
            raise ConfigError(
                f"--name {text} names none of the logs; write LOG=LABEL, as runs/a/ledger=SOME."
            )
        names[str(Path(log))] = label
    comparison = compare_logs(args.logs, args.radii, names=names, align=args.align)
    # Files before text: a reader of the text that goes away, as `head` does, must not cost the files.
    written = [] if args.out is None else html.write(comparison, args.out, args.title)
    for path in written:
        say(f"wrote {path}")
    print_comparison(comparison, form=args.format, as_json=args.json)


def show(paths: Sequence[Path], *, as_json: bool = False) -> Comparison:
    """Prints the verdict and the tables of the logs, and returns the comparison."""
    comparison = compare_logs(paths)
    print_comparison(comparison, as_json=as_json)
    return comparison


def compare_logs(
    paths: Sequence[Path],
    radii: Sequence[float] | None = None,
    *,
    names: Mapping[str, str] | None = None,
    align: bool = False,
) -> Comparison:
    from smoothheads.results.compare import compare
    from smoothheads.results.read import read_logs

    return compare(read_logs(paths, names), radii=radii, align=align)


def print_comparison(comparison: Comparison, *, form: str = "text", as_json: bool = False) -> None:
    from smoothheads.report import tables, words

    verdict = [textwrap.fill(printable(sentence), 100) for sentence in words.verdict(comparison)]
    head = ["\n".join(verdict)] if form == "text" else []
    print_tables(tables.all_tables(comparison), form, as_json=as_json, words=head)
