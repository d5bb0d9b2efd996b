"""smoothheads attack CHECKPOINT [...]"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from smoothheads.attack.settings import AttackSettings
from smoothheads.cli.common import first_argument, named_plot, parse, print_json, say
from smoothheads.cli.progress import Progress

DESCRIPTION = """Try to prove a ledger wrong. Inside every certified ball gradient attacks look for an image
that the smoothed classifier calls another class: that must not happen more often than alpha allows. Outside,
the nearest such image gives an upper curve: no sound certificate of this classifier is above it.

CHECKPOINT comes first: the network that the ledger is about, or a ledger that lies in its run's folder.
Attacked images stay on the grid of the data and distances are exact integers. Finished images are in OUT.tsv
at once; run the same command again after an interruption and it goes on.

Exit code 0 if the ledger stands, 1 if it is refuted."""


PLOT = "attack.png"


@dataclass(frozen=True, kw_only=True)
class AttackArguments:
    ledger: Path | None = None
    """The ledger (default: the one beside the checkpoint)."""
    first: int | None = None
    """Attack only the first so many images of the ledger."""
    settings: Annotated[AttackSettings, tyro.conf.arg(name="")] = field(default_factory=AttackSettings)
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Name of the results, without ending (default: attack in the ledger's folder)."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training."""
    fresh: bool = False
    """Throw away earlier results of that name."""
    plot: Path | None = None
    """Draw both curves into this file (png, svg, pdf); without a name into attack.png."""
    json: bool = False
    """Print the outcome as JSON."""


def main(arguments: list[str]) -> int:
    name, rest = first_argument(
        arguments, "a checkpoint", "give the folder that `smoothheads train` wrote", writes=True
    )
    rest, prog = named_plot(rest, PLOT), f"attack {name or 'CHECKPOINT'}"
    args = parse(AttackArguments(), rest, prog=prog, description=DESCRIPTION)

    from smoothheads.report import plots
    from smoothheads.report.table import to_text
    from smoothheads.report.tables import attack_table
    from smoothheads.runs.attack import attack_run, subject

    plots.require_place(args.plot)
    about = subject(Path(name or ""), args.ledger)
    with Progress("attack") as progress:

        def on_images(done: int, total: int, broken: int) -> None:
            if progress.total is None:
                progress.begin(total, done)
            progress.update(done, f"{done} of {total} images, {broken} broken")

        attack = attack_run(
            about,
            args.settings,
            first=args.first,
            out=args.out,
            root=args.root,
            fresh=args.fresh,
            on_images=on_images,
        )
    say(f"results: {', '.join(map(str, attack.files))}")
    if args.plot is not None:  # before the text, whose reader may go away, as `head` does
        plots.save(plots.attacked_accuracy(attack.outcome, attack.name, attack.radii), args.plot)
        say(f"wrote {args.plot}")
    if args.json:
        print_json(attack.summary())
    else:
        print(to_text(attack_table(attack.outcome, attack.radii)))
    return int(attack.outcome.refuted)
