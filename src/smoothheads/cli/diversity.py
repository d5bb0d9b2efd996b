"""smoothheads diversity CHECKPOINT [...]"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from smoothheads.cli.certify import trained_config
from smoothheads.cli.common import first_argument, parse, print_json, say
from smoothheads.cli.progress import Progress
from smoothheads.config import SubsetConfig
from smoothheads.runs.sampling import Sampling

if TYPE_CHECKING:
    from smoothheads.report.table import Table

DESCRIPTION = """How different the heads of a network are under noise: how often two of them disagree, whether
they fail together, how much of their variance the ensemble averages away; and for one test image the
log-probability gap between its label and the best other class, over many noisy copies (the SOME paper's
Figure 2; below zero is an error).

CHECKPOINT comes first: a checkpoint folder or the folder of a training run."""


@dataclass(frozen=True, kw_only=True)
class Diversity:
    sampling: Annotated[Sampling, tyro.conf.arg(name="")]
    index: int = 0
    """Test image whose log-probability gaps are shown."""
    subset: SubsetConfig = field(default_factory=lambda: SubsetConfig(first=100))
    """Test images on which the heads are compared."""
    plot: Path | None = None
    """Draw the gaps' histograms into this file (png, svg, pdf)."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training."""
    json: bool = False
    """Print everything as JSON."""


def main(arguments: list[str]) -> None:
    name, rest = first_argument(arguments, "a checkpoint", "give the folder that `smoothheads train` wrote")
    sigma = trained_config(Path(name)).train.sigma if name else 0.25
    args = parse(
        Diversity,
        rest,
        default=Diversity(sampling=Sampling(sigma=sigma)),
        prog=f"diversity {name or 'CHECKPOINT'}",
        description=DESCRIPTION,
    )
    facts = _measure(Path(name or ""), args)
    if args.json:
        print_json(facts)
        return
    from smoothheads.report.table import to_text

    print("\n\n".join(to_text(each) for each in (_over_images(facts), _of_one(facts))))


def _measure(folder: Path, args: Diversity) -> dict[str, Any]:
    from smoothheads.data import select
    from smoothheads.report import plots
    from smoothheads.runs.certify import certification_images
    from smoothheads.runs.diversity import gaps, measure
    from smoothheads.runs.layout import open_checkpoint

    if args.plot is not None:
        plots.require_format(plots.ending(args.plot))
    ready = open_checkpoint(folder)
    data = replace(ready.config.data, root=args.root or ready.config.data.root)
    test = certification_images(ready, data, SubsetConfig())
    chosen, one = select(test, args.subset), select(test, SubsetConfig(indices=(args.index,)))
    sampling = args.sampling
    with Progress("diversity", len(chosen) * sampling.copies + sampling.draws) as progress:
        spread = measure(ready, chosen, sampling, progress.add)
        found = gaps(ready, one, 0, sampling, progress.add)
    label = ready.info.class_names[int(one.labels[0])]
    if args.plot is not None:
        title = f"test image {args.index} ({label}), sigma {sampling.sigma:g}"
        plots.save(plots.gap_histogram(found, title), args.plot)
        say(f"wrote {args.plot}")
    return {
        "checkpoint": str(folder),
        "sigma": sampling.sigma,
        "heads": len(ready.model.heads),
        "images": spread.to_dict(),
        "image": {"index": args.index, "label": label} | found.to_dict(),
    }


def _over_images(facts: dict[str, Any]) -> Table:
    from smoothheads.report.table import Cell, Table

    found = facts["images"]
    if facts["heads"] == 1:
        notes = [
            "One head: there is nothing to compare, so disagreement, correlation and variance are left out."
        ]
    else:
        notes = [
            "disagreement: share of copies on which two heads answer differently.",
            "correlation: of two heads' errors; 1 when they fail together, 0 when independently.",
            f"variance: of the ensemble's logits over the heads' own; 1 when they move together, "
            f"{1 / facts['heads']:.2f} when independently.",
        ]
    names = {"disagreement": "disagreement", "error_correlation": "correlation", "variance_ratio": "variance"}
    shown = {name: found[key] for key, name in names.items() if facts["heads"] > 1}
    worst, best = min(found["head_accuracy"]), max(found["head_accuracy"])
    heads = f"{100 * worst:.1f} to {100 * best:.1f}" if facts["heads"] > 1 else "–"
    return Table(
        title=f"Heads under noise: {found['images']} images, {found['copies']:,} copies, "
        f"sigma {facts['sigma']:g}",
        columns=("", "right %", "heads right %", *shown),
        rows=(
            (
                Cell("all copies"),
                Cell(f"{100 * found['accuracy']:.1f}"),
                Cell(heads),
                *(Cell("–" if value is None else f"{value:.3f}") for value in shown.values()),
            ),
        ),
        notes=tuple(notes),
    )


def _of_one(facts: dict[str, Any]) -> Table:
    from smoothheads.report.table import Cell, Table

    image = facts["image"]
    curves = image["curves"] if facts["heads"] > 1 else {"ensemble": image["curves"]["ensemble"]}
    rows = [
        (
            Cell("network" if facts["heads"] == 1 else name),
            Cell(f"{100 * curve['right']:.2f}"),
            Cell(f"{curve['mean']:.2f}"),
            Cell("–" if curve["deviation"] is None else f"{curve['deviation']:.2f}"),
        )
        for name, curve in curves.items()
    ]
    return Table(
        title=f"Log-probability gap of image {image['index']} ({image['label']}), {image['draws']:,} copies",
        columns=("", "right %", "mean gap", "deviation"),
        rows=tuple(rows),
    )
