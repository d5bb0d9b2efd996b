"""smoothheads paper [EXPERIMENT]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from smoothheads.cli.common import parse, print_tables, say
from smoothheads.cli.progress import Progress
from smoothheads.cli.study import StudyOptions, left_out, make
from smoothheads.errors import ConfigError

if TYPE_CHECKING:
    from smoothheads.report.table import Table
    from smoothheads.studies.costs import Costs
    from smoothheads.studies.experiments import Experiment
    from smoothheads.studies.outcome import Outcome

DESCRIPTION = """The experiments of the SOME paper: published values, and the same rows and columns run here.

  smoothheads paper                              the experiments and the claims that they answer
  smoothheads paper table3 --published           published values, without any run
  smoothheads paper table3 --scale small --root DATA     runs it, or goes on; CIFAR-10 lies in DATA
  smoothheads paper table3 --import LOGS         others' certification logs as rows
  smoothheads paper all --scale smoke            every experiment on the embedded digits, in minutes
  smoothheads paper fig4 fig5 --scale small ...  several as one study, which makes nothing twice"""


@dataclass(frozen=True, kw_only=True)
class PaperOptions(StudyOptions):
    experiments: tyro.conf.Positional[tuple[str, ...]] = ()
    """Of table2 to table9, fig2 to fig5, fig7, draws; all: every one. Several are run as one study."""
    published: bool = False
    """Only the published values."""
    scale: str | None = None
    """paper, small, smoke, or a TOML file like ours (src/smoothheads/studies/scales)."""
    imports: Annotated[tuple[str, ...], tyro.conf.arg(name="import")] = ()
    """Certification logs of others: paths that say base, structure and sigma (some/gaussian-0.25.tsv),
    folders of such, or BASE/STRUCTURE/SIGMA=PATH. Several logs of one row are its seeds."""
    costs: bool = False
    """Only cost tables (table2, table5, table8), and of them only the costs, which need no training."""
    page: Path | None = None
    """With --from: write all of it as one Markdown page, with a picture of the claims beside it."""


def main(arguments: list[str]) -> int:
    args = parse(PaperOptions(), arguments, prog="paper", description=DESCRIPTION)

    from smoothheads.studies import experiments, paper, published

    if not (args.experiments or args.published or args.scale or args.source or args.imports):
        print_tables([paper.listing()], args.format, as_json=args.json)
        return 0
    every = list(experiments.EXPERIMENTS.values())
    named = [experiments.get(name) for name in dict.fromkeys(args.experiments) if name != "all"]
    chosen = every if "all" in args.experiments else named or every
    if args.imports and not named:
        raise ConfigError("an experiment with --import", "none", "name the one whose rows the logs are")
    if args.costs:
        chosen = [each for each in chosen if each.kind == "cost"]
        if not chosen:
            raise ConfigError(
                "a cost table with --costs",
                ", ".join(args.experiments),
                "name table2, table5, table8 or all",
            )
    if args.published or not (args.scale or args.source or args.imports):
        shown = [published.table(each.id, each.title) for each in chosen]
        print_tables(shown, args.format, as_json=args.json)
        return 0
    if args.page is not None:
        return write_page(args.page, args.source)
    if args.source is not None and not named:
        chosen = _all_kept(chosen, args.source)
    if args.out is not None:
        _claim(args.out, chosen)
    outcomes = _outcomes(chosen, args)
    if outcomes is None:
        return 0
    if args.imports:
        outcomes, without_row = paper.with_imports(outcomes, paper.read_logs(args.imports))
        for log in without_row:
            say(f"{log.arm} at sigma {log.sigma:g} is no row of {', '.join(outcomes)}: left out")
    costs = cost(chosen, args)
    if args.out is not None and not args.status:  # before anything is shown: `| head` closes the pipe
        _keep(outcomes, costs if any(each.kind == "cost" for each in chosen) else None, args.out)
    shown = [table for each in chosen for table in tables(each, outcomes[each.id], costs)]
    print_tables(shown, args.format, as_json=args.json)
    return 1 if any(outcome.failed for outcome in outcomes.values()) else 0


def _outcomes(chosen: Sequence[Experiment], args: PaperOptions) -> dict[str, Outcome] | None:
    """What was kept or is run now, by experiment; none where only a plan was asked for."""
    from smoothheads.studies import paper

    if args.source is not None:
        return {each.id: paper.kept(each, args.source) for each in chosen}
    if args.scale is not None:
        return run(chosen, args.scale, args)
    return {each.id: paper.empty(each) for each in chosen}


def run(chosen: Sequence[Experiment], scale_name: str, args: PaperOptions) -> dict[str, Outcome] | None:
    """All experiments as one plan, so that what they share is made once."""
    from smoothheads.studies import experiments, gaps, paper
    from smoothheads.studies.outcome import collect, kept, require_same_study, save
    from smoothheads.studies.plan import together
    from smoothheads.studies.prepare import prepare
    from smoothheads.studies.store import StudyStore

    scale = experiments.scale(scale_name)
    trained = [each for each in chosen if each.trained and not args.costs]
    prepared = {each.id: prepare(experiments.study(each, scale, args.root)) for each in trained}
    outcomes = {each.id: paper.empty(each) for each in chosen}
    if not prepared:
        if args.plan:
            say("costs alone: nothing is trained, they are measured in some minutes")
        return None if args.plan else outcomes
    whole, plans = together({name: plan for name, (plan, _) in prepared.items()})
    folders = [args.out / name for name in plans] if args.out is not None else []
    for folder, plan in zip(folders, plans.values(), strict=False):
        require_same_study(folder, plan.votes_by_name)
    before, measured, networks = kept(*folders, on_damaged=left_out), None, set[tuple[str, str]]()
    if "fig2" in plans:  # the gaps are measured with its networks: rows alone do not do
        measured = gaps.kept(plans["fig2"], args.out, scale.draws)
        networks = plans["fig2"].votes if measured is None else networks
    missing = whole.without(before.keys() - networks)
    store = StudyStore(args.store)

    def found(failed: Mapping[str, str]) -> dict[str, Outcome]:
        return {name: collect(plan, store, failed, before) for name, plan in plans.items()}

    def keep() -> None:
        for folder, outcome in zip(folders, found({}).values(), strict=True):
            extra = {"gaps": measured} if measured and outcome.name == "fig2" else {}
            save(replace(outcome, extra=extra), folder)

    images = max(count for _, count in prepared.values())
    failed = make(whole, missing, images, args, keep if folders else None)
    if failed is None:
        return None
    outcomes |= found(failed)
    if "fig2" in plans and not args.status:
        for reason in {failed[item.key] for item in plans["fig2"].items if item.key in failed}:
            say(f"fig2: its picture needs networks that failed: {reason}")  # its rows may be kept
        measured = measured or gaps.measure(plans["fig2"], store, scale.draws)
    if measured:
        outcomes["fig2"] = replace(outcomes["fig2"], extra={"gaps": measured})
    return outcomes


def cost(chosen: Sequence[Experiment], args: PaperOptions) -> Costs | None:
    """What the cost tables among the chosen compare, measured now; or all that was kept, on which claims of
    other tables rest too."""
    from smoothheads.studies.costs import load

    if args.source is not None:
        return load(args.source)
    names = tuple(each.id for each in chosen if each.kind == "cost")
    if args.scale is None or not names:
        return None
    if args.status:
        return None if args.out is None else load(args.out)

    from smoothheads.config import from_dict
    from smoothheads.studies import experiments
    from smoothheads.studies.measure import CostSettings, measure

    settings = from_dict(CostSettings, dict(experiments.scale(args.scale).costs))
    with Progress("costs", 2 * (settings.rounds + 1)) as progress:
        return measure(names, settings, lambda: progress.add(1))


def tables(experiment: Experiment, outcome: Outcome, costs: Costs | None) -> list[Table]:
    from smoothheads.studies import claims, gaps, paper
    from smoothheads.studies.costs import table as cost_table
    from smoothheads.studies.tables import costs as costs_here

    if experiment.kind == "schedule":
        from smoothheads.studies import schedule

        return [schedule.table()]
    shown = [paper.comparison(experiment, outcome)] if experiment.trained else []
    if outcome.extra.get("gaps"):
        shown.append(gaps.table(outcome.extra["gaps"]))
    if experiment.kind == "cost" and costs is not None:
        shown.append(cost_table(experiment.id, costs))
    if any(each.measured and "imported" not in each.facts for each in outcome.results):
        shown.append(costs_here(outcome))
    if claims.of_experiment(experiment.id):
        shown.append(claims.table(experiment.id, outcome, costs.ratios() if costs else None))
    return shown


def write_page(path: Path, source: Path | None) -> int:
    if source is None:
        raise ConfigError("--from with --page", "none", "name the folder of kept results")

    from smoothheads.studies import page

    for written in page.write_page(source, path):
        say(f"wrote {written}")
    return 0


def _all_kept(experiments: Sequence[Experiment], folder: Path) -> list[Experiment]:
    from smoothheads.studies import paper

    there = [each for each in experiments if paper.is_kept(each, folder)]
    if not there:
        raise ConfigError(
            "a folder of kept experiments", str(folder), "name the --out of an earlier smoothheads paper"
        )
    if missing := [each.id for each in experiments if each not in there]:
        say(f"not kept in {folder}: {', '.join(missing)}")
    return there


def _claim(folder: Path, chosen: Sequence[Experiment]) -> None:
    """Raises StorageError where something else lies than what this command writes."""
    from smoothheads.files import reserve_file
    from smoothheads.studies.costs import FILE, STAMP
    from smoothheads.studies.outcome import claim_folder

    for each in chosen:
        claim_folder(folder / each.id)
    reserve_file(folder / FILE, STAMP)


def _keep(outcomes: Mapping[str, Outcome], costs: Costs | None, folder: Path) -> None:
    from smoothheads.studies import experiments, html, paper
    from smoothheads.studies.costs import save as save_costs
    from smoothheads.studies.figures import write
    from smoothheads.studies.outcome import save

    for name, outcome in outcomes.items():
        experiment = experiments.get(name)
        if experiment.kind == "cost" and not outcome.results:
            continue  # there are only costs
        save(outcome, folder / name)
        if outcome.results:
            html.write_page(outcome, folder / name)
        write(paper.figure(experiment, outcome), folder / name, name)
    if costs is not None:
        save_costs(costs, folder)
