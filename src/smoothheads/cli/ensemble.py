"""smoothheads ensemble CHECKPOINT..."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from smoothheads.cli.common import parse, print_json, say

DESCRIPTION = """Join separately trained networks into one whose heads they are: one checkpoint, certified by
every aggregation (mean, vote, consensus, ...) in one pass. The heads' logits are the members' to the bit.

With --learn-weights the aggregation `weighted` is learned on noisy validation images; one multi-head
checkpoint is enough for that."""


@dataclass(frozen=True, kw_only=True)
class EnsembleArguments:
    checkpoints: tyro.conf.Positional[tuple[Path, ...]]
    """Checkpoint folders or folders of training runs, of one architecture, one data set and one sigma."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder of the joined checkpoint."""
    learn_weights: bool = False
    """Learn a weight per head on validation images, for the aggregation `weighted`."""
    on_training: bool = False
    """Learn on training images instead, which the networks know."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training; only learning needs it."""
    draws: int = 10
    """Noise draws per image that the weights are learned on."""
    device: str = "cpu"
    threads: int = 1
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    default = EnsembleArguments(checkpoints=(), out=tyro.MISSING)
    args = parse(default, arguments or ["--help"], prog="ensemble", description=DESCRIPTION)

    from smoothheads import device
    from smoothheads.checkpoint import load
    from smoothheads.runs.ensemble import ensemble_run

    with device.threads(args.threads):
        out = ensemble_run(
            args.checkpoints,
            args.out,
            learn_weights=args.learn_weights,
            root=args.root,
            draws=args.draws,
            on_training=args.on_training,
            device=device.parse(args.device),
        )
    joined = load(out)
    learned = joined.model.ensemble_weights
    weights = None if learned is None else [round(w, 4) for w in learned.tolist()]
    if args.json:
        print_json({"checkpoint": str(out), "heads": len(joined.model.heads), "weights": weights})
        return
    learned_on = f", weights {weights} from {joined.manifest['weights_learned_on']} images" if weights else ""
    say(f"{len(joined.model.heads)} heads{learned_on}")
    print(out)
