"""smoothheads audit LOG..."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from smoothheads.cli.common import parse, print_json

DESCRIPTION = """Check certification logs, ours or anybody's in the field's format: complete indices,
duplicates, consistency of predict and correct, radii above the cap, the n and alpha that the top radii
reveal, rounding up, time format; for our ledgers also votes, bounds and radii, recomputed.

Exit code 0 if there is no error, 1 if there is one; warnings do not count."""


@dataclass(frozen=True, kw_only=True)
class AuditArguments:
    logs: tyro.conf.Positional[tuple[Path, ...]]
    """Ledger folders or log files."""
    sigma: float | None = None
    """Noise level of the run, if the log does not say."""
    n: int | None = None
    """Stated samples, if the log does not say."""
    alpha: float | None = None
    """Stated failure probability, if the log does not say."""
    expected: int | None = None
    """How many images a complete log holds."""
    json: bool = False
    """Print the findings as JSON."""


def main(arguments: list[str]) -> int:
    args = parse(AuditArguments(logs=()), arguments or ["--help"], prog="audit", description=DESCRIPTION)

    from smoothheads.report.words import audit_json, audit_text
    from smoothheads.results.audit import audit

    audits = [
        audit(path, sigma=args.sigma, n=args.n, alpha=args.alpha, expected=args.expected)
        for path in args.logs
    ]
    if args.json:
        print_json([audit_json(each) for each in audits])
    else:
        print("\n\n".join(audit_text(each) for each in audits))
    return 0 if all(each.sound for each in audits) else 1
