"""New certificates from stored votes: another alpha or another aggregation, without one forward pass.

Each certificate holds with its own alpha. Whoever tries many settings and keeps the best has chosen after
seeing the votes; then alpha must be divided by the number of settings tried.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from smoothheads.errors import LedgerError, one_of
from smoothheads.results.read import read_log
from smoothheads.results.recount import recompute
from smoothheads.results.results import Results
from smoothheads.results.row import to_line

RECOUNTABLE = ("fixed", "radius", "randomized", "pair")
"""Budgets whose n does not depend on the votes that are counted; a sequential test stops because of them."""


def recertify(
    source: Path | str | Results,
    out: Path | str,
    *,
    alpha: float | None = None,
    aggregation: str | None = None,
) -> Path:
    """Writes a ledger like the given one, certified with another alpha or aggregation."""
    log = source if isinstance(source, Results) else read_log(source)
    again = recertified(log, alpha=alpha, aggregation=aggregation)
    assert again.manifest is not None
    lines = "\n".join(map(to_line, log.rows))
    origin = {"ledger": hashlib.sha256(lines.encode()).hexdigest()}
    return replace(again, manifest=replace(again.manifest, source=origin)).save(out)


def recertified(log: Results, *, alpha: float | None = None, aggregation: str | None = None) -> Results:
    """The same votes under another alpha or aggregation; raises LedgerError where they do not allow it."""
    if (error := obstacle(log)) is not None:
        raise error
    manifest = log.manifest
    assert manifest is not None, "votes come with a manifest"
    aggregation = log.aggregation if aggregation is None else aggregation
    if aggregation not in manifest.aggregations:
        raise one_of(f"aggregation of {log.name}", aggregation, manifest.aggregations)
    config = manifest.certify.changed(aggregation=aggregation, **({} if alpha is None else {"alpha": alpha}))
    if hasattr(config.budget, "bound"):
        config = config.changed(bound="clopper-pearson")
    manifest = replace(manifest, certify=config)
    rows = [
        replace(row, certificate=recompute(config, row, manifest.correction)) if row.votes.n else row
        for row in log.rows
    ]
    return Results.of(log.name, rows, manifest)


def obstacle(log: Results) -> LedgerError | None:
    """Why its votes cannot be certified again, with another alpha or for another threat; None if they can."""
    if not log.rows or any(row.selection.n == 0 for row in log.rows):
        wanted = f"selection and estimation votes in {log.name}"
        return LedgerError(wanted, "rows without them", "certify again; foreign logs keep no votes")
    if log.budget not in RECOUNTABLE:
        remedy = "a sequential test stops because of its votes; certify with the fixed budget"
        return LedgerError(f"a budget of {', '.join(RECOUNTABLE)}", log.budget, remedy)
    return None
