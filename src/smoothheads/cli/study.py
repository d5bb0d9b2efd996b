"""smoothheads study FILE"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from smoothheads.cli.certify import parse_cluster, silent
from smoothheads.cli.common import first_argument, parse, print_tables, say
from smoothheads.errors import duration

if TYPE_CHECKING:
    from smoothheads.errors import SmoothheadsError
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


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    root: str | None = None
    """Where the data set lies, if not where the file says."""
    store: Path = Path("runs")
    """Where networks and ledgers are kept, for all studies."""
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
    """Say how far it is, while it may be running elsewhere, show what is there, and stop."""
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Show what was kept in this folder by --out, instead of running anything."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for the results (paper: with a folder per experiment): all that is needed to show them again,
    with figures. Rows that it or a folder beside it holds already are not made again, even where the store
    is gone."""
    format: Literal["text", "markdown", "latex", "csv"] = "text"
    json: bool = False
    """Print the tables as JSON."""


def main(arguments: list[str]) -> int:
    name, rest = first_argument(arguments, "a study file", "give a TOML file, see docs/studies.md")
    args = parse(StudyOptions(), rest, prog=f"study {name or 'FILE'}", description=DESCRIPTION)

    from smoothheads.studies.outcome import claim_folder, collect, kept, load, require_same_study, save
    from smoothheads.studies.parse import read_study

    if args.out is not None:
        claim_folder(args.out)
    study = read_study(Path(name or "")).at(args.root)
    if args.source is not None:
        return show(load(args.source), args)

    from smoothheads.studies.prepare import prepare
    from smoothheads.studies.store import StudyStore

    plan, images = prepare(study)
    out, store = args.out, StudyStore(args.store)
    if out is not None:
        require_same_study(out, plan.votes_by_name)
    before = kept(out, on_damaged=left_out) if out is not None else {}
    keep = None if out is None else lambda: save(collect(plan, store, kept=before), out)
    failed = make(plan, plan.without(before), images, args, keep)
    return 0 if failed is None else show(collect(plan, store, failed, before), args)


def left_out(error: SmoothheadsError) -> None:
    """Rows that are made again, perhaps for hours, where they could be mended."""
    say(f"rows of a study beside --out are left out: {error}")


def make(
    plan: StudyPlan,
    missing: StudyPlan,
    images: int,
    args: StudyOptions,
    keep: Callable[[], None] | None = None,
) -> dict[str, str] | None:
    """Makes what is missing of a plan, or only tells how far it is, and returns what failed; none where only
    the plan was asked for. `keep` is called when more has been certified: the store may not outlive the run.
    """
    from smoothheads.device import cores
    from smoothheads.runs.executors import ONE_THREAD, Executor, ProcessExecutor
    from smoothheads.studies import prepare, run
    from smoothheads.studies.jobs import STOP_SECONDS
    from smoothheads.studies.on_ray import RayJobs
    from smoothheads.studies.plan import Certification
    from smoothheads.studies.store import StudyStore

    cluster = parse_cluster(args.on, args.ray_address, args.workers)
    store, jobs = StudyStore(args.store), args.workers or cores()
    if args.status:
        costs, jobs = run.noted_estimate(missing, store) or ({}, jobs)
        say(line(run.status(missing, store, costs), jobs))
        return {}
    costs = prepare.estimate(missing, store, images)
    say(describe(plan, missing, store, images=images, seconds=sum(costs.values()), jobs=jobs))
    if args.plan:
        return None
    local = ProcessExecutor(jobs, STOP_SECONDS, ONE_THREAD)
    executor: Executor = local if cluster is None else RayJobs(cluster)
    certified = [item.key for item in missing.items if isinstance(item, Certification)]
    seen = 0

    def follow(status: Status) -> None:
        nonlocal seen
        say(line(status, executor.slots))
        done = sum(status.states[key] == "done" for key in certified)
        if keep is not None and done > seen:
            keep()
            seen = done

    with silent(cluster):
        return run.run(missing, store, executor, costs, on_status=follow)


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
    shared = Counter((row.arm, row.aggregation) for row in plan.rows if row.certification != row.own)
    for (arm, aggregation), count in shared.items():
        lines.append(f"{arm}: {count} row{'s are' if count > 1 else ' is'} {aggregation} of another ledger")
    lines.append(f"about {duration(seconds / jobs)} with {jobs} processes")
    return "\n".join(lines)


def show(outcome: Outcome, args: StudyOptions) -> int:
    """Keeps the results where they are wanted and prints the tables; 1 if an arm failed."""
    from smoothheads.studies.tables import all_tables, costs

    if args.out is not None and not args.status:  # before anything is shown: `| head` closes the pipe
        from smoothheads.studies.figures import write_figures
        from smoothheads.studies.html import write_page
        from smoothheads.studies.outcome import save

        save(outcome, args.out)
        for path in (*write_figures(outcome, args.out), write_page(outcome, args.out)):
            say(f"wrote {path}")
    tables = [*all_tables(outcome), costs(outcome)]
    shown = [each for each in tables if each.rows or args.json]  # nothing is paired or has cost anything yet
    print_tables(shown, args.format, as_json=args.json)
    return 1 if outcome.failed else 0


def line(status: Status, jobs: int) -> str:
    counts = ", ".join(f"{status.count(state)} {state}" for state in ("done", "running", "waiting", "failed"))
    if math.isnan(status.seconds_left):
        begun = counts.replace("running", "begun")
        return f"study: {begun}; it is not running, --plan tells how long the rest takes"
    return f"study: {counts}; about {duration(status.seconds_left / jobs)} left"
