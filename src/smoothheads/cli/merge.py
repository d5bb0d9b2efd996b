"""smoothheads merge SHARD... --out DIR"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from smoothheads.cli.common import parse

DESCRIPTION = """Join the ledgers of `certify --shard i/n` into the ledger that one process would have
written. Missing images, images that two shards hold and shards of different runs are refused."""


@dataclass(frozen=True, kw_only=True)
class Merge:
    shards: tyro.conf.Positional[tuple[Path, ...]]
    """Ledger folders of all shards."""
    out: Path = Path("ledger")
    """Folder of the whole ledger."""


def main(arguments: list[str]) -> None:
    args = parse(
        Merge, arguments or ["--help"], default=Merge(shards=()), prog="merge", description=DESCRIPTION
    )

    from smoothheads.results.merge import merge

    print(merge(args.shards, args.out))
