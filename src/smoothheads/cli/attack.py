"""The commands that look into a classifier: attack and diversity."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

import tyro

from smoothheads.attack.settings import AttackSettings
from smoothheads.checkpoint import trained_config
from smoothheads.cli.common import (
    OutFile,
    ResultCommand,
    first_argument,
    local_folder,
    parse,
    print_json,
    print_tables,
    say,
)
from smoothheads.cli.progress import Progress
from smoothheads.data import SubsetConfig
from smoothheads.runs.sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class AttackCommand(ResultCommand):
    """Try to prove a ledger wrong. Inside every certified ball gradient attacks look for an image that the
    smoothed classifier calls another class: that must not happen more often than alpha allows. Outside, the
    nearest such image gives an upper curve: no sound certificate of this classifier is above it.

    Attacked images stay on the grid of the data and distances are exact integers. Finished images are in
    OUT.tsv at once; run the same command again after an interruption and it goes on.

    Exit code 0 if the ledger stands, 1 if it is refuted."""

    checkpoint: tyro.conf.Positional[str]
    """The network that the ledger is about, or a ledger that lies in its run's folder."""
    ledger: Path | None = None
    """The ledger (default: the one beside the checkpoint)."""
    first: int | None = None
    """Attack only the first so many images of the ledger."""
    settings: Annotated[AttackSettings, tyro.conf.arg(name="")] = field(default_factory=AttackSettings)
    out: OutFile = None
    """Name of the results, without ending (default: attack in the ledger's folder)."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training."""
    fresh: bool = False
    """Throw away earlier results of that name."""
    plot: Path | None = None
    """Draw both curves into this file (png, svg, pdf)."""

    def run(self) -> int:
        from smoothheads.report import plots
        from smoothheads.report.tables import attack_table
        from smoothheads.runs.attack import attack_run, subject

        plots.require_place(self.plot)
        target = subject(local_folder(self.checkpoint, has_out=self.out is not None), self.ledger)
        with Progress("attack") as progress:

            def on_images(done: int, total: int, broken: int) -> None:
                if progress.total is None:
                    progress.begin(total, done)
                progress.update(done, f"{done} of {total} images, {broken} broken")

            attack = attack_run(
                target,
                self.settings,
                first=self.first,
                out=self.out,
                root=self.root,
                fresh=self.fresh,
                on_images=on_images,
            )
        say(f"results: {', '.join(map(str, attack.files))}")
        # Files before text: a reader of the text that goes away, as `head` does, must not cost the files.
        if self.plot is not None:
            plots.save(plots.attacked_accuracy(attack.outcome, attack.name, attack.radii), self.plot)
            say(f"wrote {self.plot}")
        if self.json:
            print_json(attack.summary())
        else:
            print_tables([attack_table(attack.outcome, attack.radii)], "text", as_json=False)
        return int(attack.outcome.refuted)


@dataclass(frozen=True, kw_only=True)
class DiversityCommand(ResultCommand):
    """Compare the heads of a network under noise: how often two of them disagree, whether they fail together,
    and how much of their variance the ensemble averages away. For one test image, show the log-probability
    margin between its label and the best other class over many noise samples (the SOME paper's Figure 2;
    below zero is an error).

    CHECKPOINT comes first: a checkpoint folder or the folder of a training run. More of them can follow, to
    be shown side by side."""

    sampling: Annotated[Sampling, tyro.conf.arg(name="")]
    folders: tyro.conf.Fixed[tuple[str, ...]] = ()
    index: int = 0
    """Test image whose log-probability margins are shown."""
    subset: Annotated[SubsetConfig, tyro.conf.arg(name="")] = field(
        default_factory=lambda: SubsetConfig(first=100)
    )
    """Test images on which the heads are compared."""
    plot: Path | None = None
    """Draw the margins' histograms into this file (png, svg, pdf)."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training."""

    @classmethod
    def read(cls, arguments: list[str]) -> Self:
        name, rest = first_argument(
            arguments, "a checkpoint", "give the folder that `smoothheads train` wrote"
        )
        # The noise is that of the first network's training unless --sigma says otherwise.
        sampling = Sampling(sigma=trained_config(name).certified_sigma if name else 0.25)
        # Networks that follow are shown beside the first one.
        folders = [name]
        while rest and not rest[0].startswith("-"):
            folders.append(rest.pop(0))
        default = cls(sampling=sampling, folders=tuple(folders))
        return parse(cls, rest, default=default, prog=f"diversity {name or 'CHECKPOINT'}")

    def run(self) -> None:
        from smoothheads.hub import local
        from smoothheads.report import plots, tables
        from smoothheads.runs.diversity import diversity_run

        plots.require_place(self.plot)
        with Progress("diversity") as progress:
            measured = diversity_run(
                [local(folder) for folder in self.folders],
                self.sampling,
                self.subset,
                self.index,
                root=self.root,
                on_start=progress.begin,
                on_samples=progress.add,
            )
        facts = [one.facts for one in measured]
        if self.plot is not None:
            title = f"test image {self.index} ({facts[0]['image']['label']}), sigma {self.sampling.sigma:g}"
            margins = [(one.facts["name"], one.margins) for one in measured]
            plots.save(plots.margin_histogram(margins, title), self.plot)
            say(f"wrote {self.plot}")
        if self.json:
            print_json(facts[0] if len(facts) == 1 else {"networks": facts})
            return
        shown = [tables.heads_over_images(facts), tables.margins_of_one_image(facts)]
        print_tables(shown, "text", as_json=False)
