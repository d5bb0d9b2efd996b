"""smoothheads bench votes | train | table | scaling | engines | cluster"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import tyro

from smoothheads.cli.certify import trained_config
from smoothheads.cli.common import first_argument, parse, print_json, say
from smoothheads.cli.progress import Progress
from smoothheads.errors import SmoothheadsError, suggest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from smoothheads.bench.networks import Bench
    from smoothheads.bench.outcome import BenchOutcome
    from smoothheads.report.table import Table

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
    commands: dict[str, Callable[[list[str]], None]] = {
        "votes": _votes,
        "train": _train,
        "table": _table,
        "engines": _engines,
        "scaling": _scaling,
        "cluster": _cluster,
    }
    commands[kind](rest)


def _usage() -> str:
    width = max(map(len, KINDS))
    lines = [f"  {kind:<{width}}  {what}" for kind, what in KINDS.items()]
    head = "usage: smoothheads bench KIND ... (smoothheads bench KIND --help tells more)"
    return "\n".join([head, "", HOW, "", *lines])


def _votes(arguments: list[str]) -> None:
    from smoothheads.bench import votes

    args = _parse("votes", votes.VotesSettings(), arguments)
    with _rounds(args.bench.rounds + 1) as on_round:
        outcome = votes.run(args.bench, on_round)
    _finish(outcome, args)


def _train(arguments: list[str]) -> None:
    from smoothheads.bench import train

    args = _parse("train", train.TrainSettings(), arguments)
    with _rounds(args.bench.rounds + 1) as on_round:
        outcome = train.run(args.bench, on_round)
    _finish(outcome, args)


def _scaling(arguments: list[str]) -> None:
    from smoothheads.bench import machine, scaling

    args = _parse("scaling", scaling.ScalingSettings(), arguments)
    with _rounds(5 * args.bench.rounds + 4) as on_round:
        axes = scaling.run(args.bench, on_round)
    table = scaling.table(axes, args.bench)
    table = replace(table, notes=(*table.notes, machine.line(machine.describe(1))))
    _write(args, "scaling", table, scaling.to_json(axes, args.bench), scaling.plot(axes))


def _cluster(arguments: list[str]) -> None:
    from smoothheads.bench import cluster

    args = _parse("cluster", cluster.ClusterSettings(), arguments)
    with _rounds(cluster.rounds(args.bench)) as on_round:
        found = cluster.run(args.bench, on_round)
    table, values = cluster.table(found, args.bench), cluster.to_json(found, args.bench)
    _write(args, "cluster", table, values, cluster.plot(found))


def _table(arguments: list[str]) -> None:
    from smoothheads.bench import table
    from smoothheads.runs.layout import engines_folder

    name, rest = _checkpoint(arguments)
    default = table.TableSettings(sigma=_sigma(name))
    args = _parse(f"table {name or 'CHECKPOINT'}", default, rest)
    folder = Path(name or "")
    with Progress("images", args.bench.images) as progress:
        measured = table.run(
            args.bench, folder, engines_folder(folder), args.out, root=args.root, on_images=progress.update
        )
    _write(args, f"table-{folder.name}", measured.table(), measured.to_json(), measured.plot())


def _engines(arguments: list[str]) -> None:
    from smoothheads.bench import engines

    name, rest = _checkpoint(arguments)
    default = engines.EnginesSettings(sigma=_sigma(name))
    args = _parse(f"engines {name or 'CHECKPOINT'}", default, rest)
    with _rounds(args.bench.rounds + 1) as on_round:
        outcome = engines.run(args.bench, *_trained(name, args.bench.images, args.root), on_round)
    _finish(outcome, args)


def _parse(prog: str, default: T, arguments: list[str]) -> Arguments[T]:
    from smoothheads.bench.outcome import claim_folder

    what = KINDS[prog.partition(" ")[0]]
    kind: Any = Arguments.__class_getitem__(type(default))  # type: ignore[attr-defined]
    args: Arguments[T] = parse(
        Arguments(bench=default),
        arguments,
        prog=f"bench {prog}",
        description=f"{what[0].upper()}{what[1:]}. {HOW}",
        kind=kind,
    )
    claim_folder(args.out)
    return args


def _checkpoint(arguments: list[str]) -> tuple[str | None, list[str]]:
    return first_argument(arguments, "a checkpoint", "give the folder that `smoothheads train` wrote")


def _sigma(name: str | None) -> float:
    return trained_config(Path(name)).train.sigma if name else 0.25


def _trained(name: str | None, images: int, root: str | None) -> tuple[Bench, str, Path]:
    """The network, its name, and where its converted forms are kept."""
    from smoothheads.bench.networks import trained
    from smoothheads.runs.layout import engines_folder

    folder = Path(name or "")
    return trained(folder, images, root), folder.name, engines_folder(folder)


@contextmanager
def _rounds(total: int) -> Iterator[Callable[[], None]]:
    with Progress("rounds", total) as progress:
        yield lambda: progress.add(1)


def _finish(outcome: BenchOutcome, args: Arguments[Any]) -> None:
    _write(args, outcome.name, outcome.table(), outcome.to_json(), outcome.plot())


def _write(args: Arguments[Any], name: str, table: Table, values: dict[str, Any], figure: Figure) -> None:
    from smoothheads.bench.outcome import write
    from smoothheads.report.table import to_text

    files = write(args.out, name, table, values, figure)
    print_json(values) if args.json else print(to_text(table))
    say(f"written: {', '.join(map(str, files))}")
