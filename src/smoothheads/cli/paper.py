"""smoothheads paper [EXPERIMENT]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from smoothheads.cli.certify import parse_cluster
from smoothheads.cli.common import parse, say
from smoothheads.cli.progress import Progress
from smoothheads.cli.study import Format, describe, execute, line, print_tables
from smoothheads.errors import ConfigError

if TYPE_CHECKING:
    from smoothheads.bench.costs import Costs
    from smoothheads.report.table import Table
    from smoothheads.studies.experiments import Experiment
    from smoothheads.studies.outcome import Outcome

COSTS, COSTS_STAMP = "costs.json", '"gflops"'
DESCRIPTION = """The experiments of the SOME paper: published values, and the same rows and columns run here.

  smoothheads paper                              the experiments and the claims that they answer
  smoothheads paper table3 --published           published values, without any run
  smoothheads paper table3 --scale small --root DATA     runs it, or goes on; CIFAR-10 lies in DATA
  smoothheads paper table3 --import LOGS         others' certification logs as rows
  smoothheads paper all --scale smoke            every experiment on the embedded digits, in minutes"""


@dataclass(frozen=True, kw_only=True)
class PaperOptions:
    experiment: tyro.conf.Positional[str] = ""
    """table2 to table9, fig2 to fig5, fig7, draws; all: every one."""
    published: bool = False
    """Only the published values."""
    scale: str | None = None
    """paper, small, smoke, or a TOML file like ours (src/smoothheads/studies/scales)."""
    root: str | None = None
    """Where the data set lies."""
    imports: Annotated[tuple[str, ...], tyro.conf.arg(name="import")] = ()
    """Certification logs of others: paths that say base, structure and sigma (some/gaussian-0.25.tsv), or
    BASE/STRUCTURE/SIGMA=PATH."""
    store: Path = Path("runs")
    """Where networks and ledgers are kept, for all studies."""
    workers: int | None = None
    """Processes, with one thread each (default: one per core). On Ray: jobs at once."""
    on: Literal["ray"] | None = None
    """ray: trainings and certifications on a Ray cluster, as `study` does."""
    ray_address: str | None = None
    """host:port of the cluster's head, or auto (default: RAY_ADDRESS, else a cluster of this machine)."""
    costs: bool = False
    """Of cost tables only the costs, which need no training."""
    plan: bool = False
    """Say what is needed, what is there and how long the rest will take, and stop."""
    status: bool = False
    """Show what is there, while it may be running elsewhere, and stop."""
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Recompute everything from what was kept in this folder."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for the results, a folder in it per experiment."""
    page: Path | None = None
    """With --from: write all of it as one Markdown page."""
    format: Format = "text"
    json: bool = False
    """Print the tables as JSON."""


def main(arguments: list[str]) -> int:
    args = parse(PaperOptions(), arguments, prog="paper", description=DESCRIPTION)

    from smoothheads.studies import experiments, paper

    if not args.experiment and args.scale is None:
        print_tables([paper.listing()], args.format, as_json=args.json)
        return 0
    every = args.experiment in ("", "all")
    chosen = list(experiments.EXPERIMENTS.values()) if every else [experiments.get(args.experiment)]
    if args.published or not (args.scale or args.source or args.imports):
        from smoothheads.studies import published

        print_tables(
            [published.table(each.id, each.title) for each in chosen], args.format, as_json=args.json
        )
        return 0
    if args.page is not None:
        return write_page(args.page, args.source)
    if args.out is not None:
        _claim(args.out, chosen)
    outcomes = measured(chosen, args)
    if outcomes is None:
        return 0
    costs = cost(chosen, args)
    print_tables(
        [table for each in chosen for table in tables(each, outcomes[each.id], costs)],
        args.format,
        as_json=args.json,
    )
    if args.out is not None:
        _keep(outcomes, costs, args.out)
    return 1 if any(outcome.failed for outcome in outcomes.values()) else 0


def measured(chosen: Sequence[Experiment], args: PaperOptions) -> dict[str, Outcome] | None:
    """What was kept, imported or is run now, by experiment; none where only a plan was asked for."""
    from smoothheads.studies import paper

    if args.source is not None:
        found = {each.id: _kept(each, args.source) for each in chosen}
    elif args.scale is not None:
        ran = run(chosen, args)
        if ran is None:
            return None
        found = ran
    else:
        found = {each.id: paper.empty(each) for each in chosen}
    return {name: paper.with_imports(each, args.imports) for name, each in found.items()}


def _kept(experiment: Experiment, folder: Path) -> Outcome:
    """What was kept of an experiment; of a cost table perhaps only the costs."""
    from smoothheads.studies import outcome, paper

    if experiment.kind in ("cost", "schedule") and not (folder / experiment.id / outcome.FACTS).is_file():
        return paper.empty(experiment)
    return outcome.load(folder / experiment.id)


def cost(chosen: Sequence[Experiment], args: PaperOptions) -> Costs | None:
    """What the cost tables among the chosen compare, measured now or kept before."""
    names = tuple(each.id for each in chosen if each.kind == "cost")
    if not names or not (args.scale or args.source):
        return None

    from smoothheads.bench.costs import CostSettings, from_json, measure
    from smoothheads.config import from_dict, load_json
    from smoothheads.studies import experiments

    if args.source is not None:
        path = args.source / COSTS
        return from_json(load_json(path)) if path.is_file() else None
    settings = from_dict(CostSettings, dict(experiments.scale(args.scale or "").costs))
    with Progress("costs", 2 * (settings.rounds + 1)) as progress:
        return measure(names, settings, lambda: progress.add(1))


def write_page(path: Path, source: Path | None) -> int:
    if source is None:
        raise ConfigError("--from with --page", "none", "name the folder of kept results")

    from smoothheads.bench import cost_table
    from smoothheads.bench.costs import from_json
    from smoothheads.config import load_json
    from smoothheads.files import write_own
    from smoothheads.studies.experiments import EXPERIMENTS
    from smoothheads.studies.page import MADE_BY, page

    costs = from_json(load_json(source / COSTS)) if (source / COSTS).is_file() else None
    names = [name for name, each in EXPERIMENTS.items() if each.kind == "cost"] if costs else []
    tables = {name: cost_table.table(name, costs) for name in names if costs}
    text = page(source, path.parent, costs.ratios() if costs else {}, tables)
    write_own(path, text, MADE_BY)
    say(f"wrote {path}")
    return 0


def _claim(folder: Path, chosen: Sequence[Experiment]) -> None:
    """Raises StorageError where something else lies than what this command writes."""
    from smoothheads.files import claim_file
    from smoothheads.studies.outcome import claim_folder

    for each in chosen:
        claim_folder(folder / each.id)
    claim_file(folder / COSTS, COSTS_STAMP)


def _keep(outcomes: dict[str, Outcome], costs: Costs | None, folder: Path) -> None:
    from smoothheads.bench.costs import to_json
    from smoothheads.files import write_json
    from smoothheads.studies import experiments, paper
    from smoothheads.studies.figures import write
    from smoothheads.studies.html import write_page
    from smoothheads.studies.outcome import save

    for name, outcome in outcomes.items():
        save(outcome, folder / name)
        if outcome.results:
            write_page(outcome, folder / name)
        drawn = paper.figure(experiments.get(name), outcome)
        if drawn is not None:
            write(drawn, folder / name, name)
    if costs is not None:
        write_json(folder / COSTS, to_json(costs))


def run(chosen: Sequence[Experiment], args: PaperOptions) -> dict[str, Outcome] | None:
    """All experiments as one plan, so that what they share is made once."""
    from smoothheads.device import cores
    from smoothheads.studies import costs, experiments, gaps, paper
    from smoothheads.studies.outcome import collect, kept
    from smoothheads.studies.plan import together
    from smoothheads.studies.prepare import prepare
    from smoothheads.studies.run import status
    from smoothheads.studies.store import StudyStore

    scale = experiments.scale(args.scale or "")
    trained = [each for each in chosen if each.trained and not (args.costs and each.kind == "cost")]
    prepared = {each.id: prepare(experiments.study(each, scale, args.root)) for each in trained}
    store, jobs = StudyStore(args.store), args.workers or cores()
    plans = {name: plan for name, (plan, _) in prepared.items()}
    failed: dict[str, str] = {}
    folders = [args.out / each.id for each in trained] if args.out is not None else []
    before = {votes: row for folder in folders for votes, row in kept(folder).items()}
    if plans:
        whole, plans = together(plans)
        if "fig2" in plans:  # the gaps are measured with its networks: rows alone do not do
            before = {votes: row for votes, row in before.items() if votes not in plans["fig2"].votes}
        missing = whole.without(before)
        images = max(count for _, count in prepared.values())
        seconds = costs.estimate(missing, store, images)
        if args.status:
            say(line(status(missing, store, seconds), jobs))
        else:
            say(describe(whole, missing, store, images=images, seconds=sum(seconds.values()), jobs=jobs))
            if args.plan:
                return None
            cluster = parse_cluster(args.on, args.ray_address, args.workers)
            failed = execute(missing, store, seconds, jobs, cluster)
    found = {
        each.id: collect(plans[each.id], store, failed, before) if each.id in plans else paper.empty(each)
        for each in chosen
    }
    if "fig2" in plans:
        found["fig2"] = replace(
            found["fig2"], extra={"gaps": gaps.measure(plans["fig2"], store, scale.draws)}
        )
    return found


def tables(experiment: Experiment, outcome: Outcome, costs: Costs | None = None) -> list[Table]:
    from smoothheads.studies import claims, gaps, paper, schedule
    from smoothheads.studies.tables import costs as costs_here

    if experiment.kind == "schedule":
        return [schedule.table()]
    found = [paper.comparison(experiment, outcome)] if experiment.trained else []
    if outcome.extra.get("gaps"):
        found.append(gaps.table(outcome.extra["gaps"]))
    if experiment.kind == "cost" and costs is not None:
        from smoothheads.bench import cost_table

        found.append(cost_table.table(experiment.id, costs))
    if any(each.measured and "imported" not in each.facts for each in outcome.results):
        found.append(costs_here(outcome))
    if claims.of_experiment(experiment.id):
        found.append(claims.table(experiment.id, outcome, costs.ratios() if costs else None))
    return found
