"""smoothheads study FILE"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from smoothheads.cli.certify import parse_cluster, silent
from smoothheads.cli.common import first_argument, parse, print_tables, say
from smoothheads.errors import duration

if TYPE_CHECKING:
    from smoothheads.studies.results import StudyResults
    from smoothheads.studies.run import Status, StudyRun

DESCRIPTION = """Train and certify many configurations and seeds alike, reuse finished work, and compare them
with confidence intervals.

FILE comes first: a TOML file with arms (a recipe and its overrides), sigmas, seeds, settings, certify, images
and show (docs/studies.md). Results are cached in the store under a hash of all settings, so that no study
trains or certifies anything twice. Stop it at any moment; the same command goes on."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    root: str | None = None
    """Where the data set lies, if not where the file says."""
    store: Path = Path("runs")
    """Where networks, ledgers and rows of all studies are stored."""
    workers: int | None = None
    """Processes, with one thread each (default: one per core). On Ray: jobs at once."""
    on: Literal["ray"] | None = None
    """ray: train and certify on a Ray cluster, whose nodes need the data; what they write is copied into the
    store, also while they run."""
    ray_address: str | None = None
    """host:port of the cluster's head, or auto (default: RAY_ADDRESS, else a cluster of this machine)."""
    plan: bool = False
    """Say what is needed, what is finished and how long the rest will take, and stop."""
    status: bool = False
    """Say how far the study is, perhaps in another terminal, show what is finished, and stop."""
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Show the results that --out wrote to this folder, instead of running anything."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Export the results to this folder (paper: with a folder per experiment), with figures and all that is
    needed to show them again. Rows in it or in a folder next to it are not made again."""
    format: Literal["text", "markdown", "latex", "csv"] = "text"
    json: bool = False
    """Print the tables as JSON."""


def main(arguments: list[str]) -> int:
    name, rest = first_argument(arguments, "a study file", "give a TOML file, see docs/studies.md")
    args = parse(StudyOptions(), rest, prog=f"study {name or 'FILE'}", description=DESCRIPTION)

    from smoothheads.studies.results import load, reserve_folder
    from smoothheads.studies.run import start
    from smoothheads.studies.spec import read_study

    if args.out is not None:
        reserve_folder(args.out)
    study = read_study(Path(name or "")).at(args.root)
    if args.source is not None:
        return show(load(args.source), args)
    found = run(start(study, args.store, args.out, say), args)
    return 0 if found is None else show(found[study.name], args)


def run(studies: StudyRun, args: StudyOptions) -> dict[str, StudyResults] | None:
    """Runs studies or tells how far they are, and returns their results; None after --plan."""
    cluster = parse_cluster(args.on, args.ray_address, args.workers)
    if args.status:
        say(status_line(studies.status(), args.workers))
        return studies.results()
    say(studies.describe(args.workers))
    if args.plan:
        return None
    with silent(cluster):
        return studies.run(args.workers, cluster, lambda status, jobs: say(status_line(status, jobs)))


def show(study: StudyResults, args: StudyOptions) -> int:
    """Saves the results if asked to and prints the tables; returns 1 if an arm failed."""
    from smoothheads.studies.tables import all_tables, costs

    if args.out is not None and not args.status:  # before anything is printed: `| head` closes the pipe
        from smoothheads.studies.figures import write_figures
        from smoothheads.studies.page import write_study_page
        from smoothheads.studies.results import save

        save(study, args.out)
        for path in (*write_figures(study, args.out), write_study_page(study, args.out)):
            say(f"wrote {path}")
    tables = [*all_tables(study), costs(study)]
    shown = [each for each in tables if each.rows or args.json]  # some are empty at the beginning
    print_tables(shown, args.format, as_json=args.json)
    return 1 if study.failed else 0


def status_line(status: Status, jobs: int | None) -> str:
    from smoothheads.device import cores

    counts = ", ".join(f"{status.count(state)} {state}" for state in ("done", "running", "waiting", "failed"))
    if math.isnan(status.seconds_left):
        return f"study: {counts}; the time left is known when something has been measured"
    return f"study: {counts}; about {duration(status.seconds_left / (jobs or cores()))} left"
