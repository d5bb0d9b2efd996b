"""Converts ledgers of the format smoothheads-ledger/2, whose checksums did not cover the manifest.

Usage: python benchmarks/reseal.py LEDGER...

The old checksums and every row's votes are checked before anything is written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from smoothheads.errors import LedgerError
from smoothheads.results.ledger import TABLE, load, save
from smoothheads.results.manifest import FILE, FORMAT, from_json
from smoothheads.results.row import CHECKS, Checksums

OLD = "smoothheads-ledger/2"


def reseal(folder: Path) -> int:
    """Rewrites one ledger in place and returns the number of its rows."""
    data = json.loads((folder / FILE).read_text())
    if data["format"] != OLD:
        raise LedgerError(f"{folder} has the format {data['format']}, not {OLD}.")
    chain, lines = Checksums(""), []
    for sealed in (folder / TABLE).read_text().splitlines()[1:]:
        if error := chain.error(sealed):
            raise LedgerError(f"{folder} is damaged: {error}.")
        chain = chain.after(sealed)
        lines.append(sealed.rsplit("\t", len(CHECKS))[0])
    save(folder, from_json(data | {"format": FORMAT}, str(folder)), lines)
    return len(load(folder).rows)  # re-derives every row from its votes


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {reseal(Path(name))} rows")
