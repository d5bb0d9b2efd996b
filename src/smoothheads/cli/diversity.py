"""smoothheads diversity CHECKPOINT... [...]"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from smoothheads.checkpoint import trained_config
from smoothheads.cli.common import first_argument, named_plot, parse, print_json, say
from smoothheads.cli.progress import Progress
from smoothheads.data import SubsetConfig
from smoothheads.runs.sampling import Sampling

DESCRIPTION = """Compare the heads of a network under noise: how often two of them disagree, whether they fail
together, and how much of their variance the ensemble averages away. For one test image, show the
log-probability margin between its label and the best other class over many noise samples (the SOME paper's
Figure 2; below zero is an error).

CHECKPOINT comes first: a checkpoint folder or the folder of a training run. More of them can follow, to be
shown side by side."""

PLOT = "diversity.png"


@dataclass(frozen=True, kw_only=True)
class Diversity:
    sampling: Annotated[Sampling, tyro.conf.arg(name="")]
    index: int = 0
    """Test image whose log-probability margins are shown."""
    subset: Annotated[SubsetConfig, tyro.conf.arg(name="")] = field(
        default_factory=lambda: SubsetConfig(first=100)
    )
    """Test images on which the heads are compared."""
    plot: Path | None = None
    """Draw the margins' histograms into this file (png, svg, pdf); without a name into diversity.png."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training."""
    json: bool = False
    """Print everything as JSON."""


def main(arguments: list[str]) -> None:
    name, rest = first_argument(arguments, "a checkpoint", "give the folder that `smoothheads train` wrote")
    folders = [Path(name or "")]
    while rest and not rest[0].startswith("-"):
        folders.append(Path(rest[0]))
        rest = rest[1:]
    args = parse(
        Diversity(sampling=Sampling(sigma=trained_config(folders[0]).certified_sigma if name else 0.25)),
        named_plot(rest, PLOT),
        prog=f"diversity {name or 'CHECKPOINT'}",
        description=DESCRIPTION,
    )

    from smoothheads.report import plots, tables
    from smoothheads.report.table import to_text
    from smoothheads.runs.diversity import diversity_run

    plots.require_place(args.plot)
    with Progress("diversity") as progress:
        measured = diversity_run(
            folders,
            args.sampling,
            args.subset,
            args.index,
            root=args.root,
            on_start=progress.begin,
            on_samples=progress.add,
        )
    facts = [one.facts for one in measured]
    if args.plot is not None:
        title = f"test image {args.index} ({facts[0]['image']['label']}), sigma {args.sampling.sigma:g}"
        plots.save(
            plots.margin_histogram([(one.facts["name"], one.margins) for one in measured], title), args.plot
        )
        say(f"wrote {args.plot}")
    if args.json:
        print_json(facts[0] if len(facts) == 1 else {"networks": facts})
        return
    print("\n\n".join(map(to_text, (tables.heads_over_images(facts), tables.margins_of_one_image(facts)))))
