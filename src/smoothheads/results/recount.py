"""Recounts our own ledgers: every certificate must follow from the votes beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from smoothheads.certify.algorithm import top_class
from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.theorem import Theorem
from smoothheads.errors import LedgerError
from smoothheads.results import manifest as manifests
from smoothheads.results.checks import Finding
from smoothheads.results.log import Log
from smoothheads.results.manifest import Manifest, budget, correction, setting
from smoothheads.results.row import Row

BOUNDED = ("fixed", "radius")
"""Budgets whose p_lower is the Clopper-Pearson bound of k of n."""
_NEEDED = ("certify", "engine", "weights", "data", "indices", "rules", "classes", "versions")
_TEXT = 1e-15  # p_lower is cut off after 15 decimals, so only more than this is too much


def manifest_fields(manifest: Manifest) -> Iterator[Finding]:
    missing = [name for name in _NEEDED if not manifest.get(name)]
    missing += [name for name in ("sigma", "alpha", "n0", "n") if setting(manifest, name) is None]
    if missing:
        yield Finding("warning", "manifest", f"the manifest does not state {', '.join(missing)}")
    norm, proved = setting(manifest, "norm"), manifests.theorem(manifest).norm
    if norm not in (None, proved):
        message = f"the manifest says {norm} radii, but {setting(manifest, 'noise')} noise proves {proved}"
        yield Finding("error", "norm", message)
    if setting(manifest, "seed") is None or setting(manifest, "block") is None:
        message = (
            "the manifest has no noise key (seed, block): nothing shows that selection samples were fresh"
        )
        yield Finding("warning", "selection", message)


def votes(log: Log) -> Iterator[Finding]:
    """Votes sum up, the class was chosen by the selection alone, and no bound or radius claims too much."""
    if not log.has_votes:
        yield Finding("warning", "votes", "rows without votes: nothing can be recounted")
        return
    checks: dict[str, tuple[str, Callable[[Row], bool]]] = {
        "votes-sum": ("votes do not sum to n, or selection votes to n0", _sums_wrong),
        "votes-k": ("k is not the number of votes for the class", lambda row: _k_wrong(row, log)),
        "selection": (
            "the class is not the one that the selection votes chose",
            lambda row: _choice_wrong(row, log),
        ),
    }
    if budget(log.manifest) in BOUNDED and log.alpha is not None and log.sigma is not None:
        checks |= _bound_checks(log.alpha, log.sigma, _correction(log.manifest), log.theorem)
    else:
        yield Finding("note", "bound", f"bounds of the budget {budget(log.manifest)!r} are not recomputed")
    for code, (message, wrong) in checks.items():
        rows = tuple(row.index for row in log.rows if wrong(row))
        if rows:
            yield Finding("error", code, f"{message} ({len(rows)} rows)", rows)


def candidate(row: Row, log: Log) -> int | None:
    """The class whose votes were counted; None where no selection votes were kept."""
    if setting(log.manifest, "label_aware"):
        return row.label
    if row.selection is None or row.selection.n == 0:
        return None if row.abstained else row.prediction
    return top_class(row.selection.of(log.rule))


def _bound_checks(
    alpha: float, sigma: float, taken_off: float, theorem: Theorem
) -> dict[str, tuple[str, Callable[[Row], bool]]]:
    def bound(row: Row) -> float:
        return max(0.0, clopper_pearson_lower(row.k, row.n, alpha) - taken_off) if row.n else 0.0

    return {
        "bound": ("p_lower is above the bound of k of n", lambda row: row.p_lower > bound(row) + _TEXT),
        "radius": (
            "the radius is above that of the bound",
            lambda row: row.radius > theorem.radius(bound(row), sigma),
        ),
    }


def _sums_wrong(row: Row) -> bool:
    pairs = ((row.votes, row.n), (row.selection, row.n0))
    return any(votes is not None and np.any(votes.counts.sum(axis=1) != count) for votes, count in pairs)


def _k_wrong(row: Row, log: Log) -> bool:
    chosen = candidate(row, log)
    return row.votes is not None and chosen is not None and int(row.votes.of(log.rule)[chosen]) != row.k


def _choice_wrong(row: Row, log: Log) -> bool:
    return not row.abstained and candidate(row, log) != row.prediction


def _correction(manifest: Manifest) -> float:
    try:
        return correction(manifest)
    except LedgerError:
        return 0.0  # a smaller correction only lets more pass; the manifest check is for the rest
