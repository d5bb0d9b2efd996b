"""smoothheads paper [EXPERIMENT]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from smoothheads.cli.common import parse, print_tables, say
from smoothheads.cli.progress import Progress
from smoothheads.cli.study import StudyOptions, run
from smoothheads.errors import ConfigError

if TYPE_CHECKING:
    from smoothheads.studies.costs import Costs
    from smoothheads.studies.experiments import Experiment
    from smoothheads.studies.results import StudyResults

DESCRIPTION = """The experiments of the SOME paper: published values, and the same rows and columns run here.

  smoothheads paper                              the experiments and the claims that they answer
  smoothheads paper table3 --published           published values, without any run
  smoothheads paper table3 --scale small --root DATA     runs it, or goes on; CIFAR-10 lies in DATA
  smoothheads paper table3 --import LOGS         certification logs of others as rows
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
    """Certification logs of others, compared on the images that all of them have: paths that name base,
    structure and sigma (some/gaussian-0.25.tsv), folders of such, or BASE/STRUCTURE/SIGMA=PATH."""
    costs: bool = False
    """Only cost tables (table2, table5, table8), and of them only the costs, which need no training."""
    page: Path | None = None
    """With --from: write all of it as one Markdown page, with a figure of the claims next to it."""


def main(arguments: list[str]) -> int:
    args = parse(PaperOptions(), arguments, prog="paper", description=DESCRIPTION)

    from smoothheads.studies import experiments, paper

    if not (args.experiments or args.published or args.scale or args.source or args.imports):
        print_tables([paper.listing()], args.format, as_json=args.json)
        return 0
    chosen = _chosen(args)
    if args.published or not (args.scale or args.source or args.imports):
        shown = [experiments.published_table(each) for each in chosen]
        print_tables(shown, args.format, as_json=args.json)
        return 0
    if args.page is not None:
        if args.source is None:
            raise ConfigError("--page needs --from with the folder of saved results.")
        from smoothheads.studies.page import write_page

        for path in write_page(args.source, args.page):
            say(f"wrote {path}")
        return 0
    if args.out is not None:
        paper.reserve_folders(args.out, chosen)
    found = _results(chosen, args)
    if found is None:
        return 0
    if args.imports:
        found = paper.with_imports(found, paper.read_logs(args.imports, say), say)
    costs = _costs(chosen, args)
    if args.out is not None and not args.status:  # before anything is printed: `| head` closes the pipe
        paper.save_all(found, costs if any(each.kind == "cost" for each in chosen) else None, args.out)
    shown = [table for each in chosen for table in paper.all_tables(each, found[each.id], costs)]
    print_tables(shown, args.format, as_json=args.json)
    return 1 if any(study.failed for study in found.values()) else 0


def _chosen(args: PaperOptions) -> list[Experiment]:
    from smoothheads.studies import experiments, paper

    every = list(experiments.EXPERIMENTS.values())
    named = [experiments.get(name) for name in dict.fromkeys(args.experiments) if name != "all"]
    chosen = every if "all" in args.experiments else named or every
    if args.imports and not named:
        raise ConfigError("--import needs an experiment: name the one whose rows the logs are.")
    if args.costs:
        chosen = [each for each in chosen if each.kind == "cost"]
        if not chosen:
            raise ConfigError("--costs needs a cost table: name table2, table5, table8 or all.")
    if args.source is not None and not named and args.page is None:
        saved = [each for each in chosen if paper.is_saved(each, args.source)]
        if not saved:
            raise ConfigError(f"{args.source} has no saved experiments; name the --out of an earlier run.")
        if missing := [each.id for each in chosen if each not in saved]:
            say(f"not in {args.source}: {', '.join(missing)}")
        chosen = saved
    return chosen


def _results(chosen: Sequence[Experiment], args: PaperOptions) -> dict[str, StudyResults] | None:
    """Returns what was saved or is run now, by experiment; None if only a plan was asked for."""
    from smoothheads.studies import experiments, paper

    if args.source is not None:
        return {each.id: paper.load_saved(each, args.source) for each in chosen}
    found = {each.id: paper.empty(each) for each in chosen}
    if args.scale is None:
        return found
    scale = experiments.scale(args.scale)
    trained = [] if args.costs else chosen
    studies = paper.start(trained, scale, store=args.store, out=args.out, root=args.root, on_note=say)
    if studies is None:
        if args.plan:
            say("costs alone: nothing is trained, they are measured in some minutes")
        return None if args.plan else found
    made = run(studies, args)
    if made is None:
        return None
    return found | (made if args.status else paper.finish(studies, made, scale))


def _costs(chosen: Sequence[Experiment], args: PaperOptions) -> Costs | None:
    """Returns saved costs, on which claims of other tables rest too, or measures the chosen tables."""
    from smoothheads.studies import costs, experiments

    if args.source is not None:
        return costs.load(args.source)
    if args.scale is None or not any(each.kind == "cost" for each in chosen):
        return None
    if args.status:
        return None if args.out is None else costs.load(args.out)
    from smoothheads.studies.measure import measure

    settings = experiments.scale(args.scale).costs
    with Progress("costs") as progress:
        progress.begin(2 * (settings.rounds + 1), 0)
        tables = tuple(each.id for each in chosen if each.kind == "cost")
        return measure(tables, settings, lambda: progress.add(1))
