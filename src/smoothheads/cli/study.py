"""The commands that run many trainings and certifications alike: study and paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from os import devnull
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from smoothheads.cli.common import Form, OutFolder, ResultCommand, print_tables, say
from smoothheads.errors import ConfigError

if TYPE_CHECKING:
    from smoothheads.runs.on_ray import Cluster
    from smoothheads.studies.experiments import Experiment
    from smoothheads.studies.results import StudyResults
    from smoothheads.studies.run import StudyRun


@dataclass(frozen=True, kw_only=True)
class StudyOptions(ResultCommand):
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
    out: OutFolder = None
    """Export the results to this folder (paper: with a folder per experiment), with figures and all that is
    needed to show them again. Rows in it or in a folder next to it are not made again."""
    format: Form = "text"
    """How tables are printed."""

    def results(self, studies: StudyRun) -> dict[str, StudyResults] | None:
        """Runs studies or tells how far they are, and returns their results; None after --plan."""
        cluster = parse_cluster(self.on, self.ray_address, self.workers)
        # --status and --plan start nothing, so that they may run beside the study itself.
        if self.status:
            say(studies.status().line(self.workers))
            return studies.results()
        say(studies.describe(self.workers))
        if self.plan:
            return None
        with silent(cluster):
            return studies.run(self.workers, cluster, lambda status, jobs: say(status.line(jobs)))


@dataclass(frozen=True, kw_only=True)
class StudyCommand(StudyOptions):
    """Train and certify many configurations and seeds alike, reuse finished work, and compare them with
    confidence intervals.

    FILE has arms (a recipe and its overrides), sigmas, seeds, settings, certify, images and show
    (docs/studies.md). Results are cached in the store under a hash of all settings, so that no study trains
    or certifies anything twice. Stop it at any moment; the same command goes on."""

    file: tyro.conf.Positional[Path]
    """Study file in TOML."""

    def run(self) -> int:
        from smoothheads.studies.results import load
        from smoothheads.studies.run import start
        from smoothheads.studies.spec import read_study

        study = read_study(self.file).at(self.root)
        if self.source is not None:
            return self._show(load(self.source))
        folders = {} if self.out is None else {study.name: self.out}
        found = self.results(start({study.name: study}, self.store, folders, say))
        return 0 if found is None else self._show(found[study.name])

    def _show(self, study: StudyResults) -> int:
        """Saves the results if asked to and prints the tables; returns 1 if an arm failed."""
        from smoothheads.studies.tables import all_tables, costs

        # Files before text: a reader of the text that goes away, as `head` does, must not cost the files.
        if self.out is not None and not self.status:
            from smoothheads.studies.figures import write_figures
            from smoothheads.studies.page import write_study_page
            from smoothheads.studies.results import save

            save(study, self.out)
            for path in (*write_figures(study, self.out), write_study_page(study, self.out)):
                say(f"wrote {path}")
        tables = [*all_tables(study), costs(study)]
        shown = [each for each in tables if each.rows or self.json]  # some are empty at the beginning
        print_tables(shown, self.format, as_json=self.json)
        return 1 if study.failed else 0


@dataclass(frozen=True, kw_only=True)
class PaperCommand(StudyOptions):
    """Show the experiments of the SOME paper: published values, and the same rows and columns run here.

      smoothheads paper table3 --published           published values, without any run
      smoothheads paper table3 --scale small --root DATA     runs it, or goes on; CIFAR-10 lies in DATA
      smoothheads paper table3 --import LOGS         certification logs of others as rows
      smoothheads paper all --scale smoke            every experiment on the embedded digits, in minutes
      smoothheads paper fig4 fig5 --scale small ...  several as one study, which makes nothing twice

    Without arguments the experiments and the claims that they answer are listed."""

    experiments: tyro.conf.Positional[tuple[str, ...]] = ()
    """Of table2 to table9, fig2 to fig5, fig7, draws; all: every one. Several are run as one study."""
    published: bool = False
    """Only the published values."""
    scale: str | None = None
    """paper, small, smoke, or a TOML file like ours (src/smoothheads/studies/scales)."""
    imports: Annotated[tuple[str, ...], tyro.conf.arg(name="import")] = ()
    """Certification logs of others, compared on the images that all of them have: paths that name base,
    structure and sigma (some/gaussian-0.25.tsv), folders of such, or BASE/STRUCTURE/SIGMA=PATH."""
    page: Path | None = None
    """With --from: write all of it as one Markdown page, with a figure of the claims next to it."""

    def run(self) -> int:
        from smoothheads.studies import costs, experiments, paper

        # Without a name: the list of experiments. Without a source of results: the published values.
        has_results = bool(self.scale or self.source or self.imports)
        if not (self.experiments or self.published or has_results):
            print_tables([paper.listing()], self.format, as_json=self.json)
            return 0
        chosen = self._chosen()
        if self.published or not has_results:
            shown = [experiments.published_table(each) for each in chosen]
            print_tables(shown, self.format, as_json=self.json)
            return 0
        if self.page is not None:
            return self._write_page(self.page)
        # Our rows first, then logs of others beside them, then costs that were measured into the same folder.
        found = self._results_of(chosen)
        if found is None:
            return 0
        if self.imports:
            found = paper.with_imports(found, paper.read_logs(self.imports, say), say)
        folder = self.source or self.out
        measured = None if folder is None else costs.load(folder)
        # Files before text: a reader of the text that goes away, as `head` does, must not cost the files.
        if self.out is not None and not self.status:
            paper.save_all(found, self.out)
        shown = [table for each in chosen for table in paper.all_tables(each, found[each.id], measured)]
        print_tables(shown, self.format, as_json=self.json)
        return 1 if any(study.failed for study in found.values()) else 0

    def _write_page(self, page: Path) -> int:
        from smoothheads.studies.page import write_page

        if self.source is None:
            raise ConfigError("--page needs --from with the folder of saved results.")
        for path in write_page(self.source, page):
            say(f"wrote {path}")
        return 0

    def _chosen(self) -> list[Experiment]:
        """Returns the experiments that the arguments name; all of them where they name none."""
        from smoothheads.studies import experiments, paper

        every = list(experiments.EXPERIMENTS.values())
        named = [experiments.get(name) for name in dict.fromkeys(self.experiments) if name != "all"]
        chosen = every if "all" in self.experiments else named or every
        if self.imports and not named:
            raise ConfigError("--import needs an experiment: name the one whose rows the logs are.")
        # Of a folder that an earlier run wrote everything that it holds is shown.
        if self.source is not None and not named and self.page is None:
            saved = [each for each in chosen if paper.is_saved(each, self.source)]
            if not saved:
                raise ConfigError(f"{self.source} has no saved experiments: name the --out of a run.")
            if missing := [each.id for each in chosen if each not in saved]:
                say(f"not in {self.source}: {', '.join(missing)}")
            chosen = saved
        return chosen

    def _results_of(self, chosen: Sequence[Experiment]) -> dict[str, StudyResults] | None:
        """Returns what was saved or is run now, by experiment; None if only a plan was asked for."""
        from smoothheads.studies import experiments, paper

        if self.source is not None:
            return {each.id: paper.load_saved(each, self.source) for each in chosen}
        found = {each.id: paper.empty(each) for each in chosen}
        if self.scale is None:
            return found
        scale = experiments.scale(self.scale)
        studies = paper.start(chosen, scale, store=self.store, out=self.out, root=self.root, on_note=say)
        if studies is None:
            return found
        made = self.results(studies)
        if made is None:
            return None
        return found | (made if self.status else paper.finish(studies, made, scale))


def parse_cluster(
    on: str | None, address: str | None, workers: int | None, threads: int = 1
) -> Cluster | None:
    """Returns the Ray cluster that the options name, or None without `--on ray`."""
    if on is None:
        if address is not None:
            raise ConfigError("--ray-address needs --on ray: add it, or drop the address.")
        return None
    from smoothheads.runs.on_ray import Cluster

    return Cluster(address, None if workers is None else workers * threads)


@contextmanager
def silent(cluster: Cluster | None) -> Iterator[None]:
    """Keeps Ray's long messages about lost workers off standard output, which is for the answer."""
    if cluster is None:
        yield
        return
    with Path(devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield
