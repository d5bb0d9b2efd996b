"""smoothheads bench votes | train | table | scaling | engines | cluster"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from smoothheads.checkpoint.folder import trained_config
from smoothheads.cli.common import first_argument, parse, print_json, say
from smoothheads.cli.progress import Progress
from smoothheads.errors import SmoothheadsError, suggest

KINDS = {
    "votes": "votes per second against the plain loop, separate networks and ART",
    "train": "a training step of SOME against the plain step",
    "table": "CHECKPOINT: a whole certified-accuracy table against n samples of every image; resumes",
    "engines": "CHECKPOINT: every engine's speed, agreement with float32, and certificates",
    "scaling": "cost against n, heads, image size, blocks per pass and workers",
    "cluster": "how busy 8, 64 and 512 workers would be, simulated with the scheduler of --on ray",
}
HOW = "Contenders take turns, so that other work on the machine hits all alike. Writes JSON, table and plot."

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Arguments(Generic[T]):
    bench: Annotated[T, tyro.conf.arg(name="")]
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("bench")
    """Folder for the results."""
    json: bool = False
    """Print the results as JSON."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training (table, engines)."""


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        raise SystemExit(0)  # as the other commands' help does
    kind, *rest = arguments
    if kind not in KINDS:
        raise SmoothheadsError("a benchmark", repr(kind), suggest(kind, KINDS))
    prog, name, known = kind, None, {}
    if KINDS[kind].startswith("CHECKPOINT"):
        name, rest = first_argument(rest, "a checkpoint", "give the folder that `smoothheads train` wrote")
        prog = f"{kind} {name or 'CHECKPOINT'}"
        known = {"sigma": trained_config(Path(name)).train.sigma if name else 0.25}

    from smoothheads.bench.networks import TrainedNetwork
    from smoothheads.bench.outcome import claim_folder
    from smoothheads.report.table import to_text

    # A benchmark is a module of `bench`: its settings, and `run`, which gives a BenchOutcome.
    module = import_module(f"smoothheads.bench.{kind}")
    settings = getattr(module, f"{kind.capitalize()}Settings")
    parsed: Any = Arguments.__class_getitem__(settings)  # type: ignore[attr-defined]
    args: Arguments[Any] = parse(
        Arguments(bench=settings(**known)),
        rest,
        prog=f"bench {prog}",
        description=f"{KINDS[kind][0].upper()}{KINDS[kind][1:]}. {HOW}",
        kind=parsed,
    )
    claim_folder(args.out)
    given: list[Any] = [] if name is None else [TrainedNetwork(Path(name), args.root)]
    given += [args.out] if kind == "table" else []  # where it goes on
    with Progress("images" if kind == "table" else "rounds", args.bench.steps) as progress:
        outcome = module.run(args.bench, *given, on_round=lambda: progress.add(1))
    files = outcome.write(args.out)
    print_json(outcome.to_json()) if args.json else print(to_text(outcome.table))
    say(f"written: {', '.join(map(str, files))}")


def _usage() -> str:
    width = max(map(len, KINDS))
    lines = [f"  {kind:<{width}}  {what}" for kind, what in KINDS.items()]
    head = "usage: smoothheads bench KIND ... (smoothheads bench KIND --help tells more)"
    return "\n".join([head, "", HOW, "", *lines])
