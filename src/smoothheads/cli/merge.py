"""smoothheads merge SHARD... --out DIR"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from smoothheads.cli.common import parse, print_json

DESCRIPTION = """Join the ledgers of `certify --shard i/n` into the ledger that one process would have
written. Missing images, images that two shards hold and shards of different runs are refused."""


@dataclass(frozen=True, kw_only=True)
class MergeArguments:
    shards: tyro.conf.Positional[tuple[Path, ...]]
    """Ledger folders of all shards, or the run's folder that they lie in."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder of the merged ledger (default: ledger beside the shards)."""
    json: bool = False
    """Print the folder as JSON."""


def main(arguments: list[str]) -> None:
    args = parse(MergeArguments(shards=()), arguments or ["--help"], prog="merge", description=DESCRIPTION)

    from smoothheads.results.derive import merge

    first = args.shards[0]
    beside = first if any(first.glob("ledger-*-of-*")) else first.absolute().parent
    out = merge(args.shards, args.out or beside / "ledger")
    print_json({"ledger": str(out)}) if args.json else print(out)
