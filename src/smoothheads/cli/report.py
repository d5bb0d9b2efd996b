"""smoothheads report LEDGER..."""

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

DESCRIPTION = """Average certified radius, certified accuracy at radii, abstentions and cost, each with its
standard error; with several logs also the paired differences from the first one.

Reads our ledgers and anybody's log in the field's format (idx label predict radius correct time)."""


@dataclass(frozen=True, kw_only=True)
class ReportArguments:
    logs: tyro.conf.Positional[tuple[Path, ...]]
    """Ledger folders, folders of runs or log files; the first is the baseline of the differences."""
    name: tuple[str, ...] = ()
    """LOG=LABEL: how a log is called in tables and plots."""
    radii: tuple[float, ...] | None = None
    """Radii of the table (default: steps of a quarter)."""
    align: bool = False
    """Compare logs with different images or settings on the images they share."""
    format: Literal["text", "markdown", "latex"] = "text"
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for report.html and the plots as PNG."""
    title: str = "Certified robustness"
    json: bool = False
    """Print the tables as JSON."""


def main(arguments: list[str]) -> None:
    run(read_arguments(arguments, "report", DESCRIPTION))


def read_arguments(arguments: list[str], prog: str, description: str) -> ReportArguments:
    return parse(ReportArguments(logs=()), arguments or ["--help"], prog=prog, description=description)


def run(args: ReportArguments) -> None:
    from smoothheads.report import make

    if args.out is not None:
        make.claim_folder(args.out)
    names = labels(args.name, args.logs)
    comparison = show(
        args.logs, args.radii, names=names, align=args.align, form=args.format, as_json=args.json
    )
    if args.out is not None:
        for path in make.write(comparison, args.out, args.title):
            say(f"wrote {path}")


def labels(given: Sequence[str], logs: Sequence[Path]) -> dict[str, str]:
    """LOG=LABEL by the log's path; raises ConfigError where no such log was named."""
    found = {}
    for text in given:
        log, _, label = text.rpartition("=")
        if not label or Path(log) not in logs:
            raise ConfigError("LOG=LABEL for one of the logs", repr(text), "for example runs/a/ledger=SOME")
        found[str(Path(log))] = label
    return found


def show(
    paths: Sequence[Path],
    radii: Sequence[float] | None = None,
    *,
    names: Mapping[str, str] | None = None,
    align: bool = False,
    form: str = "text",
    as_json: bool = False,
) -> Comparison:
    """Prints the verdict and the tables of the logs, and gives back what they were made from."""
    from smoothheads.report import tables, verdict
    from smoothheads.results.compare import compare
    from smoothheads.results.read import read_logs

    comparison = compare(read_logs(paths, names), radii=radii, align=align)
    said = [textwrap.fill(printable(sentence), 100) for sentence in verdict.sentences(comparison)]
    words = ["\n".join(said)] if form == "text" else []
    print_tables(tables.all_tables(comparison), form, as_json=as_json, words=words)
    return comparison
