"""New ledgers and logs from old ones, without one forward pass: merged shards, another alpha or aggregation,
other threats.

Each new certificate holds with its own alpha. Whoever tries many settings and keeps the best has chosen after
seeing the votes; then alpha must be divided by the number of settings tried.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from smoothheads import hub
from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothheads.certify.threats import linf_radius, linf_radius_of_l1, linf_radius_uniform, top_k_radius
from smoothheads.errors import ConfigError, LedgerError, one_of
from smoothheads.files import new_folder, reserve
from smoothheads.noise import Uniform
from smoothheads.results.ledger import TABLE, load, save
from smoothheads.results.manifest import Manifest, require_same
from smoothheads.results.metrics import image_differences
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.results.row import recompute, to_line
from smoothheads.types import ABSTAIN, Certified

RECOUNTABLE = ("fixed", "radius")
"""Budgets whose n does not depend on the votes that are counted; a sequential test stops because of them."""
LINF = "linf"


def merge(folders: Sequence[Path | str], out: Path | str) -> Path:
    """Joins the ledgers of shards into the ledger that one process would have written, and returns `out`.

    Raises LedgerError for missing images, images that two shards hold, and shards of different runs.

    Args:
        folders: The ledgers of all shards, or the run's folder that they lie in.
    """
    if not folders:
        raise LedgerError("There is nothing to merge; name the folders of the shards.")
    out = Path(out)
    reserve(out)
    # A folder is a shard itself, or holds the shards of a run.
    found: dict[Path, None] = {}
    for place in map(hub.local, folders):
        inside = [] if (place / TABLE).exists() else sorted(place.glob(f"ledger-*-of-*/{TABLE}"))
        found |= dict.fromkeys([table.parent for table in inside] or [place])
    shards = list(found)

    # Shards are read one after the other: hundreds need no more memory than one.
    merged: Manifest | None = None
    lines: dict[int, str] = {}
    origin: dict[int, Path] = {}
    for folder in shards:
        shard = load(folder)
        if len(shards) == 1 and shard.manifest.shard is None:
            raise LedgerError(f"{folder} is no shard, so there is nothing to merge it with.")
        manifest = replace(shard.manifest, shard=None)
        if merged is None:
            first, merged = folder, manifest
        elif replace(manifest, created=merged.created) != merged:  # quicker than to name the differences
            remedy = f"leave out {folder}, which is of another run"
            require_same(merged, manifest, f"the settings of {first}", remedy)
        for row, line in zip(shard.rows, shard.lines, strict=True):
            if row.index in lines:
                raise LedgerError(
                    f"Image {row.index} is in both {origin[row.index]} and {folder}; leave one of them out."
                )
            lines[row.index], origin[row.index] = line, folder
    assert merged is not None, "there is a shard"

    expected = merged.indices
    if expected is None:
        raise LedgerError(
            f"The manifest of {first} does not state its indices, so nobody knows what to merge."
        )
    # Together the shards must hold every image of the run, and no other.
    _, missing, other = image_differences(list(lines), expected)
    if missing:
        some = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise LedgerError(
            f"{len(missing)} of the run's {len(expected)} images are missing ({some}); finish every shard "
            "before merging."
        )
    if other:
        raise LedgerError(f"Image {other[0]} of {origin[other[0]]} does not belong to the run.")
    with new_folder(out) as folder:
        save(folder, merged, [lines[index] for index in expected])
    return out


def recertify(
    source: Path | str | Results,
    out: Path | str,
    *,
    alpha: float | None = None,
    aggregation: str | None = None,
) -> Path:
    """Writes a ledger of the same votes, certified with another alpha or aggregation, and returns `out`."""
    log = source if isinstance(source, Results) else read_log(source)
    again = recertified(log, alpha=alpha, aggregation=aggregation)
    assert again.manifest is not None
    # The new manifest names the ledger whose votes were used, by the hash of its rows.
    lines = "\n".join(map(to_line, log.rows))
    origin = {"ledger": hashlib.sha256(lines.encode()).hexdigest()}
    return replace(again, manifest=replace(again.manifest, source=origin)).save(out)


def recertified(log: Results, *, alpha: float | None = None, aggregation: str | None = None) -> Results:
    """Returns the same votes under another alpha or aggregation; raises LedgerError if that is invalid."""
    require_recountable(log)
    manifest = log.manifest
    assert manifest is not None, "votes come with a manifest"
    aggregation = log.aggregation if aggregation is None else aggregation
    if aggregation not in manifest.aggregations:
        raise one_of(f"aggregation of {log.name}", aggregation, manifest.aggregations)
    # The settings that change, then the certificate that the same votes give under them.
    config = manifest.certify.changed(aggregation=aggregation, **({} if alpha is None else {"alpha": alpha}))
    manifest = replace(manifest, certify=config)
    rows = [
        replace(row, certificate=recompute(config, row, manifest.correction)) if row.votes.n else row
        for row in log.rows
    ]
    return Results.of(log.name, rows, manifest)


def is_recountable(log: Results) -> bool:
    """Returns whether the votes can be certified again, with another alpha or for another threat."""
    complete = bool(log.rows) and all(row.selection.n > 0 for row in log.rows)
    return complete and log.budget in RECOUNTABLE


def require_recountable(log: Results) -> None:
    """Raises a LedgerError that says why the votes cannot be certified again."""
    if not is_recountable(log):
        if log.rows and log.budget not in RECOUNTABLE:
            raise LedgerError(
                f"The votes of {log.name} cannot be used again: the budget {log.budget} stops because of its "
                "votes. Certify with the fixed budget."
            )
        raise LedgerError(
            f"{log.name} has no selection and estimation votes, as logs of others; certify again."
        )


def linf(log: Results, dimension: int | None = None) -> Results:
    """Returns the certified l-infinity balls that lie inside the certified balls.

    Under uniform noise they are the larger ones that its bounds prove.

    Args:
        log: Certificates in the norm that the noise proves.
        dimension: The number d of pixel values, for a log that does not state its shape.
    """
    if log.norm != log.law.norm:
        raise LedgerError(f"{log.name} has {log.norm} radii, not {log.law.norm}; give the original ledger.")
    if dimension is None:
        shape = None if log.manifest is None else log.manifest.shape
        if not shape:
            raise ConfigError(f"{log.name} does not state the shape of its images; give the dimension.")
        dimension = math.prod(shape)

    # A cube of half-width r lies in the l2 ball of radius r sqrt(d), and in the l1 ball of radius r d.
    inside = linf_radius if log.norm == "l2" else linf_radius_of_l1
    radii = [inside(float(radius), dimension) for radius in log.radius]
    if log.law == Uniform() and log.sigma is not None and log.rows:
        bounds = [0.0 if row.abstained else row.certificate.p_lower for row in log.rows]
        proved = (linf_radius_uniform(bound, log.sigma, dimension) for bound in bounds)
        radii = list(map(max, radii, proved))
    return log.without_votes(radius=np.array(radii), norm=LINF)


def top_k(log: Results, k: int) -> Results:
    """Returns how far the true label certainly stays among the k most likely classes (l2).

    With probability at least 1 - alpha per image its lower bound and the others' upper bounds hold at once,
    at alpha / C each. Raises LedgerError where votes or settings are missing, or where the votes decided when
    to stop.
    """
    if log.law.norm != "l2" or log.norm != "l2":
        raise LedgerError(f"Top-k is known for Gaussian noise only; {log.name} has {log.norm} radii.")
    require_recountable(log)
    radius = np.array([_top_k_radius(row, log, k) for row in log.rows])
    # Whoever is certainly among the k most likely counts as correct, everybody else as an abstention.
    prediction = np.where(radius > 0, log.label, ABSTAIN)
    return log.without_votes(radius=radius, prediction=prediction)


def _top_k_radius(row: Certified, log: Results, k: int) -> float:
    """Returns the l2 radius within which the label of one image stays among the k most likely classes."""
    n, votes = row.votes.n, row.votes.for_aggregation(log.aggregation)
    if n == 0 or log.alpha is None or log.sigma is None or log.manifest is None:
        return 0.0
    # One lower and C - 1 upper bounds hold at once with probability 1 - alpha (union bound).
    level, correction = log.alpha / len(votes), log.manifest.correction
    p_lower = max(0.0, clopper_pearson_lower(int(votes[row.label]), n, level) - correction)
    # Of the other classes only the k with most votes matter.
    rivals = np.sort(np.delete(votes, row.label))[::-1][:k].tolist()
    p_upper = [clopper_pearson_upper(count, n, level) + correction for count in rivals]
    return top_k_radius(p_lower, p_upper, k, log.sigma)
