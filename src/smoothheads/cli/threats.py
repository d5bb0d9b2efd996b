"""smoothheads threats LEDGER [--linf] [--top-k K ...]"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from smoothheads.cli.common import first_argument, parse, print_json
from smoothheads.errors import ConfigError

DESCRIPTION = """Derive certificates against other threats from the radii and votes of an l2 ledger, without
one forward pass: l-infinity balls (--linf), and how far the true label stays among the k most likely classes
(--top-k).

LEDGER comes first. l-infinity radii are the l2 radii divided by the square root of the dimension: derived
numbers, weak for large images. Top-k statements hold with probability at least 1 - alpha per image; the
bounds of all classes share alpha."""


@dataclass(frozen=True, kw_only=True)
class ThreatsArguments:
    linf: bool = False
    """l-infinity radii."""
    top_k: tuple[int, ...] = ()
    """Certify that the true label stays among so many classes; several values give several rows."""
    radii: tuple[float, ...] | None = None
    """l2 radii of the top-k table (default: steps of a quarter)."""
    levels: tuple[float, ...] | None = None
    """l-infinity radii of its table, in steps of the grid: 8 stands for 8/255 (default: powers of two)."""
    dimension: int | None = None
    """Pixel values of an image, for a log that does not state its shape."""
    json: bool = False
    """Print the tables and the radius of every image as JSON."""


def main(arguments: list[str]) -> None:
    name, rest = first_argument(arguments, "a ledger", "give the folder that `smoothheads certify` wrote")
    args = parse(ThreatsArguments(), rest, prog=f"threats {name or 'LEDGER'}", description=DESCRIPTION)
    if not args.linf and not args.top_k:
        raise ConfigError("Name a threat: add --linf, --top-k K, or both.")

    from smoothheads.report import table, tables
    from smoothheads.results.read import read_log

    log = read_log(Path(name or ""))
    threats = [tables.linf(log, args.levels, args.dimension)] if args.linf else []
    threats += [tables.top_k(log, args.top_k, args.radii)] if args.top_k else []
    if args.json:
        print_json([each for threat in threats for each in threat.to_json()])
    else:
        print("\n\n".join(table.to_text(threat.table()) for threat in threats))
