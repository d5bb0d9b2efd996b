"""smoothheads study FILE"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from smoothheads.cli.certify import parse_cluster, silent
from smoothheads.cli.common import first_argument, parse, print_json, say
from smoothheads.errors import duration

if TYPE_CHECKING:
    from smoothheads.report.table import Table
    from smoothheads.runs.cluster import Cluster
    from smoothheads.studies.outcome import Outcome
    from smoothheads.studies.plan import StudyPlan
    from smoothheads.studies.run import Status
    from smoothheads.studies.store import StudyStore

DESCRIPTION = """Train and certify several arms alike and show them as one table, with differences paired over
images, noise and seeds.

FILE comes first: a TOML file with arms (a recipe and what is changed), sigmas, seeds, settings, certify,
images and show (docs/studies.md). Networks and ledgers lie in the store under a name made from everything
they were told, so that nothing is trained or certified twice, in any study. Stop it at any moment; the same
command goes on."""

Format = Literal["text", "markdown", "latex", "csv"]


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    store: Path = Path("runs")
    """Where networks and ledgers are kept, for all studies."""
    root: str | None = None
    """Where the data set lies, if not where the file says."""
    workers: int | None = None
    """Processes, with one thread each (default: one per core). On Ray: jobs at once."""
    on: Literal["ray"] | None = None
    """ray: trainings and certifications on a Ray cluster, whose nodes need the data; what they write is
    brought back into the store, also while they run."""
    ray_address: str | None = None
    """host:port of the cluster's head, or auto (default: RAY_ADDRESS, else a cluster of this machine)."""
    plan: bool = False
    """Say what is needed, what is there and how long the rest will take, and stop."""
    status: bool = False
    """Say how far the study is, which may be running elsewhere, and stop."""
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Show what was kept in this folder by --out, instead of running anything."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for the results: all that is needed to show them again, with figures. Rows that it holds
    already are not made again, even where the store is gone."""
    format: Format = "text"
    json: bool = False
    """Print the tables as JSON."""


def main(arguments: list[str]) -> int:
    name, rest = first_argument(arguments, "a study file", "give a TOML file, see docs/studies.md")
    args = parse(StudyOptions(), rest, prog=f"study {name or 'FILE'}", description=DESCRIPTION)

    from smoothheads.studies.outcome import claim_folder
    from smoothheads.studies.parse import read_study

    if args.out is not None:
        claim_folder(args.out)
    cluster = parse_cluster(args.on, args.ray_address, args.workers)
    study = read_study(Path(name or "")).at(args.root)
    if args.source is not None:
        from smoothheads.studies.outcome import load

        return show(load(args.source), args)

    from smoothheads.device import cores
    from smoothheads.studies import costs
    from smoothheads.studies.outcome import collect, kept
    from smoothheads.studies.prepare import prepare
    from smoothheads.studies.run import status
    from smoothheads.studies.store import StudyStore

    store = StudyStore(args.store)
    plan, images = prepare(study)
    before = kept(args.out)
    missing = plan.without(before)
    seconds = costs.estimate(missing, store, images)
    jobs = args.workers or cores()
    if args.status:
        say(line(status(missing, store, seconds), jobs))
        return show(collect(plan, store, kept=before), args)
    say(describe(plan, missing, store, images=images, seconds=sum(seconds.values()), jobs=jobs))
    if args.plan:
        return 0
    return show(collect(plan, store, execute(missing, store, seconds, jobs, cluster), before), args)


def execute(
    plan: StudyPlan, store: StudyStore, seconds: dict[str, float], jobs: int, cluster: Cluster | None = None
) -> dict[str, str]:
    """Runs what is missing and tells from time to time how far it is."""
    from smoothheads.studies.executor import Executor, LocalProcesses
    from smoothheads.studies.on_ray import RayTasks
    from smoothheads.studies.run import run

    executor: Executor = LocalProcesses(jobs) if cluster is None else RayTasks(cluster)

    def on_status(status: Status) -> None:
        say(line(status, executor.slots))

    with silent(cluster):
        return run(plan, store, executor, seconds, on_status)


def describe(
    plan: StudyPlan, missing: StudyPlan, store: StudyStore, *, images: int, seconds: float, jobs: int
) -> str:
    """What a plan needs, and what of it is not kept yet, in lines for a person."""
    from smoothheads.studies.plan import Certification, Training

    kinds = {"trainings": Training, "certifications": Certification}
    lines = [f"{plan.study.title}: {len(plan.rows)} rows, {images} images each"]
    if len(missing.rows) < len(plan.rows):
        lines.append(f"{len(plan.rows) - len(missing.rows)} rows are kept already and not made again")
    for what, kind in kinds.items():
        items = [item for item in missing.items if isinstance(item, kind)]
        there = sum(store.facts(item) is not None for item in items)
        lines.append(f"{what}: {len(items)}, of which {there} are there")
    shared = Counter((row.arm, row.rule) for row in plan.rows if row.certification != row.own)
    lines += [f"{arm}: {count} rows are {rule} of another ledger" for (arm, rule), count in shared.items()]
    lines.append(f"about {duration(seconds / jobs)} with {jobs} processes")
    return "\n".join(lines)


def show(outcome: Outcome, args: StudyOptions) -> int:
    """Prints the tables; 1 if an arm failed."""
    from smoothheads.studies.tables import all_tables, costs

    print_tables([*all_tables(outcome), costs(outcome)], args.format, as_json=args.json)
    if args.out is not None:
        from smoothheads.studies.figures import write_figures
        from smoothheads.studies.html import write_page
        from smoothheads.studies.outcome import save

        save(outcome, args.out)
        for path in (*write_figures(outcome, args.out), write_page(outcome, args.out)):
            say(f"wrote {path}")
    return 1 if outcome.failed else 0


def print_tables(tables: Sequence[Table], form: Format, *, as_json: bool = False) -> None:
    from smoothheads.report import table
    from smoothheads.studies.tables import to_csv

    if as_json:
        print_json([table.to_json(each) for each in tables])
        return
    render = {"text": table.to_text, "markdown": table.to_markdown, "latex": table.to_latex, "csv": to_csv}[
        form
    ]
    print("\n\n".join(render(each) for each in tables))


def line(status: Status, jobs: int) -> str:
    counts = ", ".join(f"{status.count(state)} {state}" for state in ("done", "running", "waiting", "failed"))
    return f"study: {counts}; about {duration(status.seconds_left / jobs)} left"
