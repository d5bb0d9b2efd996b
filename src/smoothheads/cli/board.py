"""smoothheads board DIR"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from smoothheads.cli.common import first_argument, parse, print_json, say

DESCRIPTION = """Make one static page that can be sorted from all ledgers, logs and studies below a folder:
method, network, sigma, ACR, certified accuracy, worst class and cost, with links to the evidence.

DIR comes first. Nothing enters without passing the audit, and every entry says what was verified, what is
only claimed, and what the audit could not see."""


@dataclass(frozen=True, kw_only=True)
class BoardArguments:
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The page (default: board.html in the folder)."""
    title: str = "Certified robustness: a board of verified logs"
    """Title of the page."""
    json: bool = False
    """Print which logs are on the board, and why others are not, as JSON."""


def main(arguments: list[str]) -> None:
    name, rest = first_argument(arguments, "a folder", "give a folder with ledgers and logs")
    args = parse(BoardArguments(), rest, prog=f"board {name or 'DIR'}", description=DESCRIPTION)

    from smoothheads.errors import LedgerError
    from smoothheads.files import reserve_file, write_stamped
    from smoothheads.report.board import board_html, collect
    from smoothheads.studies.board import study_entries

    folder = Path(name or "")
    out = args.out or folder / "board.html"
    reserve_file(out)
    entries, refused = collect(folder)
    of_studies, damaged = study_entries(folder)
    entries, refused = [*entries, *of_studies], refused | damaged
    if not entries and not refused:
        raise LedgerError(f"{folder} has no ledgers and logs; name a folder that has.")
    write_stamped(out, board_html(entries, refused, title=args.title, out=out))
    say(f"wrote {out}")
    if args.json:
        print_json(
            {
                "entries": [str(entry.path) for entry in entries],
                "refused": {str(path): reason for path, reason in refused.items()},
            }
        )
        return
    print(f"{len(entries)} entries, {len(refused)} refused")
    for path, reason in refused.items():
        print(f"  {path}: {reason}")
