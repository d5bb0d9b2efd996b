"""New certificates from stored votes: another alpha or another rule, without one forward pass.

Each certificate holds with its own alpha. Whoever tries many settings and keeps the best has chosen after
seeing the votes; then alpha must be divided by the number of settings tried.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from smoothheads.certify.algorithm import top_class
from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.errors import LedgerError, one_of
from smoothheads.results.manifest import Manifest
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.results.row import to_line
from smoothheads.types import ABSTAIN, Certificate, Certified

RECOUNTABLE = ("fixed", "radius", "randomized", "pair")
"""Budgets whose n does not depend on the votes that are counted; a sequential test stops because of them."""


def recertify(
    source: Path | Results, out: Path, *, alpha: float | None = None, rule: str | None = None
) -> Path:
    """Writes a ledger like the given one, certified with another alpha or rule."""
    log = source if isinstance(source, Results) else read_log(source)
    again = recertified(log, alpha=alpha, rule=rule)
    assert again.manifest is not None
    lines = "\n".join(map(to_line, log.rows))
    origin = {"ledger": hashlib.sha256(lines.encode()).hexdigest()}
    return replace(again, manifest=replace(again.manifest, source=origin)).save(out)


def recertified(log: Results, *, alpha: float | None = None, rule: str | None = None) -> Results:
    """The same votes under another alpha or rule; raises LedgerError where they do not allow it."""
    manifest = log.manifest
    if (obstacle := _obstacle(log)) is not None or manifest is None:
        raise LedgerError(*(obstacle or ("a ledger", "a foreign log", "certify again")))
    rule = log.rule if rule is None else rule
    if rule not in manifest.rules:
        raise one_of(f"rule of {log.name}", rule, manifest.rules)
    config = manifest.certify
    alpha = config.alpha if alpha is None else alpha
    config = config.changed(alpha=alpha, rule=rule)
    if hasattr(config.budget, "bound"):
        config = config.changed(bound="clopper-pearson")
    manifest = replace(manifest, certify=config)
    rows = [_certify(row, manifest) for row in log.rows]
    return Results.of(log.name, rows, manifest)


def _certify(row: Certified, manifest: Manifest) -> Certified:
    """Steps 2 to 4 of CERTIFY: the class by the selection votes, its bound by the others."""
    config, n = manifest.certify, row.votes.n
    if n == 0:
        return row
    candidate = row.label if manifest.label_aware else top_class(row.selection.for_rule(config.rule))
    k = int(row.votes.for_rule(config.rule)[candidate])
    p_lower = max(0.0, clopper_pearson_lower(k, n, config.alpha) - manifest.correction)
    radius = manifest.theorem.radius(p_lower, config.sigma)
    prediction = candidate if radius > 0 else ABSTAIN
    return replace(row, certificate=Certificate(prediction, radius, p_lower, k, n, row.certificate.n0))


def recountable(log: Results) -> bool:
    """Whether the votes can be certified again at another alpha."""
    return not _obstacle(log)


def _obstacle(log: Results) -> tuple[str, str, str] | None:
    if not log.has_votes or any(row.selection.n == 0 for row in log.rows):
        wanted = f"selection and estimation votes in {log.name}"
        return wanted, "rows without them", "certify again; foreign logs keep no votes"
    if log.budget not in RECOUNTABLE:
        remedy = "a sequential test stops because of its votes; certify again"
        return f"a budget of {', '.join(RECOUNTABLE)}", log.budget, remedy
    return None
