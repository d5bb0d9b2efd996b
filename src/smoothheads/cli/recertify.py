"""smoothheads recertify LEDGER [--alpha A] [--aggregation AGGREGATION]"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from smoothheads.cli.common import first_argument, parse, say
from smoothheads.cli.report import show
from smoothheads.errors import ConfigError

DESCRIPTION = """Certify again from a ledger's stored votes, with another alpha or for another aggregation (a
head, a prefix of heads, a consensus), without one forward pass.

LEDGER comes first. Each certificate holds at its own alpha; whoever tries many settings and keeps the best
must divide alpha by their number."""


@dataclass(frozen=True, kw_only=True)
class RecertifyArguments:
    alpha: float | None = None
    """New failure probability per image."""
    aggregation: str | None = None
    """Another base classifier whose votes were counted in the same pass."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder of the new ledger (default: beside the old one)."""
    json: bool = False
    """Print the tables as JSON."""


def main(arguments: list[str]) -> None:
    name, rest = first_argument(
        arguments, "a ledger", "give the folder that `smoothheads certify` wrote", writes=True
    )
    args = parse(RecertifyArguments(), rest, prog=f"recertify {name or 'LEDGER'}", description=DESCRIPTION)
    if args.alpha is None and args.aggregation is None:
        raise ConfigError("Add --alpha or --aggregation: with neither the certificates stay as they are.")

    from smoothheads.results.derive import recertify
    from smoothheads.results.read import ledger_folder

    folder = ledger_folder(Path(name or ""))
    changes = [f"alpha-{args.alpha:g}"] if args.alpha is not None else []
    changes += [args.aggregation] if args.aggregation is not None else []
    out = args.out or folder.with_name("-".join([folder.name, *changes]))
    recertify(folder, out, alpha=args.alpha, aggregation=args.aggregation)
    show([out], as_json=args.json)
    say(f"ledger: {out}")
