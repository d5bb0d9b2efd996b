"""New certificates from stored votes: another alpha or another rule, without one forward pass.

Each certificate holds with its own alpha. Whoever tries many settings and keeps the best has chosen after
seeing the votes; then alpha must be divided by the number of settings tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from smoothheads.certify.algorithm import top_class
from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.errors import LedgerError, one_of
from smoothheads.files import sha256
from smoothheads.results.cohen import read_log
from smoothheads.results.ledger import TABLE, Ledger
from smoothheads.results.log import Log
from smoothheads.results.manifest import Manifest, budget, correction
from smoothheads.results.row import Row
from smoothheads.types import ABSTAIN

RECOUNTABLE = ("fixed", "radius", "randomized", "pair")
"""Budgets whose n does not depend on the votes that are counted; a sequential test stops because of them."""


def recertify(folder: Path, out: Path, *, alpha: float | None = None, rule: str | None = None) -> Path:
    """Writes a ledger like the one in `folder`, certified with another alpha or rule."""
    log = recertified(read_log(folder), alpha=alpha, rule=rule)
    source = {"source": {"ledger": sha256(folder / TABLE)}}
    with Ledger.open(out, log.manifest | source) as ledger:
        for row in log.rows[len(ledger.rows) :]:
            ledger.append(row)
    return out


def recertified(log: Log, *, alpha: float | None = None, rule: str | None = None) -> Log:
    """The same votes under another alpha or rule; raises LedgerError where they do not allow it."""
    alpha = log.alpha if alpha is None else alpha
    rule = log.rule if rule is None else rule
    if (obstacle := _obstacle(log)) is not None:
        raise LedgerError(*obstacle)
    _require_rule(log, rule)
    taken_off = correction(log.manifest)
    if alpha is None or log.sigma is None:
        raise LedgerError("a manifest with sigma and alpha", "neither or one", "certify again")
    sigma, theorem = log.sigma, log.theorem

    def radius_of(p_lower: float) -> float:
        return theorem.radius(p_lower, sigma)

    rows = [_certify(row, rule, alpha, taken_off, radius_of) for row in log.rows]
    return replace(
        log,
        prediction=np.array([row.prediction for row in rows]),
        radius=np.array([row.radius for row in rows]),
        alpha=alpha,
        manifest=_changed(log.manifest, alpha, rule),
        rows=tuple(rows),
        columns={},
    )


def _certify(row: Row, rule: str, alpha: float, taken_off: float, radius_of: Callable[[float], float]) -> Row:
    """Steps 2 to 4 of CERTIFY: the class by the selection votes, its bound by the others."""
    if row.selection is None or row.votes is None or row.n == 0:
        return row
    candidate = top_class(row.selection.of(rule))
    k = int(row.votes.of(rule)[candidate])
    p_lower = max(0.0, clopper_pearson_lower(k, row.n, alpha) - taken_off)
    radius = radius_of(p_lower)
    prediction = candidate if radius > 0 else ABSTAIN
    return replace(row, prediction=prediction, radius=radius, k=k, p_lower=p_lower)


def recountable(log: Log) -> bool:
    """Whether the votes can be certified again at another alpha."""
    return not _obstacle(log)


def _obstacle(log: Log) -> tuple[str, str, str] | None:
    if not log.has_votes or any(row.selection is None or row.selection.n == 0 for row in log.rows):
        wanted = f"selection and estimation votes in {log.name}"
        return wanted, "rows without them", "certify again; foreign logs keep no votes"
    if budget(log.manifest) not in RECOUNTABLE:
        remedy = "a sequential test stops because of its votes; certify again"
        return f"a budget of {', '.join(RECOUNTABLE)}", budget(log.manifest), remedy
    return None


def _require_rule(log: Log, rule: str) -> None:
    rules = log.rows[0].votes.rules if log.rows[0].votes is not None else ()
    if rule not in rules:
        raise one_of(f"rule of {log.name}", rule, rules)


def _changed(manifest: Manifest, alpha: float, rule: str) -> Manifest:
    settings = {"alpha": alpha, "rule": rule}
    outer = {name: value for name, value in settings.items() if name in manifest}
    certify = manifest.get("certify")
    block = {**certify, **settings} if isinstance(certify, dict) else settings
    if budget(manifest) in ("randomized", "pair"):  # the votes are now bounded in the plain way
        block["bound"] = "clopper-pearson"
    return manifest | outer | {"certify": block}
