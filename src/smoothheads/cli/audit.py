"""smoothheads audit LOG..."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from smoothheads.cli.common import parse, print_json, say
from smoothheads.errors import ConfigError

DESCRIPTION = """Check certification logs, ours or anybody's in the field's format: complete indices,
duplicates, consistency of predict and correct, radii above the cap, the n and alpha that the top radii
reveal, rounding up, time format; for our ledgers also checksums, votes, bounds and radii, recomputed.

--rerun K evaluates the votes of K random images again in a fresh process, with the network that the ledger
names. --self-test sets certifiers and logs that lie before the audit, each of which it must catch.

Exit code 0 if there is no error, 1 if there is one; warnings do not count."""


@dataclass(frozen=True, kw_only=True)
class AuditArguments:
    logs: tyro.conf.Positional[tuple[Path, ...]]
    """Ledger folders or log files."""
    sigma: float | None = None
    """Standard deviation of the noise, if the log does not say."""
    n: int | None = None
    """Stated samples, if the log does not say."""
    alpha: float | None = None
    """Stated failure probability, if the log does not say."""
    expected: int | None = None
    """How many images a complete log holds."""
    rerun: int | None = None
    """Evaluate the votes of so many random images again."""
    checkpoint: Path | None = None
    """For --rerun: the network or export, if the ledger does not lie in its folder."""
    root: str | None = None
    """For --rerun: where the data set lies, if not where it lay in training."""
    self_test: bool = False
    """Set certifiers and logs that lie before the audit."""
    certifier: str | None = None
    """For --self-test: examine this certifier (smoothheads, plain, art or package.module:function)."""
    json: bool = False
    """Print the findings as JSON."""


def main(arguments: list[str]) -> int:
    args = parse(AuditArguments(logs=()), arguments or ["--help"], prog="audit", description=DESCRIPTION)
    if args.self_test:
        return _self_test(args)
    if not args.logs:
        raise ConfigError("Name the logs to audit, or add --self-test.")

    from smoothheads.report.words import audit_json, audit_text
    from smoothheads.results.audit import SEEN_BY_RERUN, audit

    audits = []
    for path in args.logs:
        result = audit(path, sigma=args.sigma, n=args.n, alpha=args.alpha, expected=args.expected)
        if args.rerun is not None and result.sound:
            from smoothheads.runs.referee import rerun

            say(f"{path}: evaluating {args.rerun} random images again in a fresh process")
            again = rerun(path, args.rerun, checkpoint=args.checkpoint, root=args.root)
            unseen = result.unseen if again.different else tuple(set(result.unseen) - set(SEEN_BY_RERUN))
            result = replace(result, findings=(*again.findings(), *result.findings), unseen=unseen)
        audits.append(result)
    if args.json:
        print_json([audit_json(each) for each in audits])
    else:
        print("\n\n".join(audit_text(each) for each in audits))
    return 0 if all(each.sound for each in audits) else 1


def _self_test(args: AuditArguments) -> int:
    from smoothheads.report.table import Cell, Table, to_text
    from smoothheads.runs import liars

    if args.certifier is not None:
        certify = liars.find_certifier(args.certifier)
        findings = [*liars.examine(certify), *liars.examine_networks(certify)]
        if args.json:
            print_json([{"severity": f.severity, "code": f.code, "message": f.message} for f in findings])
        else:
            lines = [f"  {f.severity:<8}{f.code:<12}{f.message}" for f in findings] or [
                "  nothing wrong found"
            ]
            print("\n".join([f"{args.certifier}:", *lines]))
        return int(any(finding.severity == "error" for finding in findings))
    trials = liars.self_test()
    if args.json:
        print_json([{"liar": t.liar, "must": t.must, "found": t.found, "passed": t.passed} for t in trials])
    else:
        rows = [
            (
                Cell(t.liar, t.liar),
                Cell(t.must or "nothing"),
                Cell(", ".join(t.found) or "nothing"),
                Cell("yes" if t.passed else "NO"),
            )
            for t in trials
        ]
        table = Table("Liars and what must catch them", ("liar", "finding", "found", "passed"), tuple(rows))
        print(to_text(table))
    return int(not all(trial.passed for trial in trials))
