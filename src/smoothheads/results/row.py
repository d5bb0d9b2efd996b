"""One certified image as a line of text, and the check that its certificate follows from its own votes.

The field's six columns come first, then what nobody else keeps: samples, bound and all votes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from smoothheads.certify.algorithm import DAMAGED, CertifyParams
from smoothheads.certify.config import CertifyConfig
from smoothheads.errors import SmoothheadsError, SoundnessError
from smoothheads.results.manifest import Manifest
from smoothheads.types import ABSTAIN, Certificate, Certified, Votes, format_radius

FIELD_COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
COLUMNS = (*FIELD_COLUMNS, "n0", "n", "k", "p_lower", "selection", "votes")
CHECKS = ("check", "chain")
HEADER = "\t".join((*COLUMNS, *CHECKS))
_TIME = re.compile(r"(?:(?:(\d+) days?, )?(\d+):(\d\d?):)?(\d+(?:\.\d*)?(?:e-?\d+)?)", re.ASCII)
_ROUNDING = 1e-9  # another version of SciPy may round otherwise


def to_line(row: Certified) -> str:
    """Returns the row's text without the newline.

    Radius and p_lower are rounded down, so that the text never claims more than the row.
    """
    # The field's six columns, then what the certificate follows from.
    sure = row.certificate
    field = (row.index, row.label, row.prediction, format_radius(row.radius), int(row.correct))
    counts = (sure.n0, sure.n, sure.k, format_radius(sure.p_lower, 15))
    texts = (*field, format_time(row.seconds), *counts, _sparse(row.selection), _sparse(row.votes))
    return "\t".join(str(text) for text in texts)


def from_line(
    line: str, aggregations: tuple[str, ...], classes: int, *, label_aware: bool = False
) -> Certified:
    """Returns the row of a line; raises ValueError for anything that `to_line` would not have written.

    Args:
        line: The text without newline and checksums.
        aggregations: The aggregations whose votes a row has, in this order.
        label_aware: Whether the budget certified the label instead of a class chosen by votes.
    """
    words = line.split("\t")
    if len(words) != len(COLUMNS):
        raise ValueError(f"{len(words)} columns instead of {len(COLUMNS)}")
    get = dict(zip(COLUMNS, words, strict=True))
    try:
        row = Certified(
            index=int(get["idx"]),
            label=int(get["label"]),
            certificate=Certificate(
                prediction=int(get["predict"]),
                radius=float(get["radius"]),
                p_lower=float(get["p_lower"]),
                k=int(get["k"]),
                n=int(get["n"]),
                n0=int(get["n0"]),
                label_aware=label_aware,
            ),
            selection=_dense(get["selection"], aggregations, classes),
            votes=_dense(get["votes"], aggregations, classes),
            seconds=parse_time(get["time"]),
        )
    except (IndexError, OverflowError, SoundnessError) as error:
        raise ValueError(str(error)) from error
    if not (0 <= row.label < classes and ABSTAIN <= row.prediction < classes and 0 <= row.index < 2**63):
        raise ValueError(f"index {row.index}, label {row.label}, predict {row.prediction}")
    # Every other word must be the one that this row is written with; times come in several forms.
    for name, word, own in zip(COLUMNS, words, to_line(row).split("\t"), strict=True):
        if word != own and name != "time":
            raise ValueError(f"{name} {word!r} instead of {own!r}")
    return row


def seal(line: str, before: str) -> str:
    """Returns the row's line with its checksums: `check` of the row, `chain` of all until now.

    Both leave out the time, so that a run that was interrupted has the bytes of one that was not.

    Args:
        before: `chain` of the row before; before the first row the digest of the manifest.
    """
    # check = hash(row without its time), chain = hash(chain of the row before + check).
    words = line.split("\t")
    del words[COLUMNS.index("time")]
    check = _digest("\t".join(words))
    return f"{line}\t{check}\t{_digest(before + check)}"


def chain_of(sealed: str) -> str:
    """Returns the last checksum of a line, with which that of the next row begins."""
    return sealed.rpartition("\t")[2]


def seal_error(sealed: str, before: str) -> str | None:
    """Returns what is wrong with a sealed line, None if it stands where and as it was written."""
    # A wrong `check` means this row, a right one with a wrong `chain` means what stands before it.
    line, check, _ = sealed.rsplit("\t", 2)
    again = seal(line, before)
    if again == sealed:
        return None
    if again.split("\t")[-2] != check:
        return "it was changed after it was written"
    return "the manifest was changed, or rows before it are missing, doubled or in another order"


def _digest(text: str) -> str:
    """Returns the first 16 hexadecimal digits of the SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RowError(NamedTuple):
    """An error in one row."""

    image: int
    code: str
    """`checksum`, or the number that the votes contradict."""
    message: str


def recompute(config: CertifyConfig, certified: Certified, correction: float) -> Certificate:
    """Returns the certificate that an image's own votes give, whatever `certified.certificate` claims.

    For the budgets fixed and radius it is exactly what CERTIFY gives for these votes; whether the pilot of
    `radius` would have planned this n is not checked, as its validity does not depend on the plan. table and
    anytime decide while they count, but only totals are stored: among the certificates that some order of
    these votes gives (and with which the table budget ends at this very n) it is the one nearest to the
    claimed radius. Raises SoundnessError for votes that this budget cannot have asked for.

    Args:
        correction: What the sampled noise's distance from the exact law takes off every p_lower.
    """
    # Every aggregation votes once on every sample, so all of them have one total.
    for what, votes in (("votes", certified.votes), ("selection votes", certified.selection)):
        totals = votes.counts.sum(axis=1)
        if votes.counts.min(initial=0) < 0 or (totals != totals[:1]).any():
            shown = str(votes.counts.tolist())[:80]
            raise SoundnessError(f"The {what} must have one total for all aggregations, not {shown}.")
    label = certified.label if config.plan.uses_label else None
    classes = certified.votes.counts.shape[1]
    if label is not None and not 0 <= label < classes:
        raise SoundnessError(f"Label {label} is none of {classes} classes; {DAMAGED}.")
    # What CERTIFY would have returned for these votes.
    params = CertifyParams.of(config, correction, label)
    selection, counts = (
        votes.for_aggregation(config.aggregation) for votes in (certified.selection, certified.votes)
    )
    return config.plan.recompute(params, selection, counts, certified.certificate)


def contradiction(claimed: Certificate, follows: Certificate) -> str | None:
    """Returns how `claimed` differs from what `follows` from its votes, None if it does not.

    A claim may be rounded down as far as a ledger writes it: radii to six decimals, p_lower to fifteen.
    """
    for name, cut in (("n0", 0.0), ("n", 0.0), ("k", 0.0), ("radius", 1e-6), ("p_lower", 1e-15)):
        claim, truth = getattr(claimed, name), getattr(follows, name)
        if not truth - cut - _ROUNDING <= claim <= truth + _ROUNDING:
            return f"{name} {claim:.15g}, but the votes give {truth:.15g}"
    if claimed.prediction != follows.prediction:
        return f"class {claimed.prediction}, but the votes give {follows.prediction} ({ABSTAIN}: none)"
    return None


def verify_row(row: Certified, manifest: Manifest) -> Certified | RowError:
    """Returns the row if its certificate follows from its votes, else what contradicts them.

    A table budget's radius, which is written rounded down, comes back as its votes show it.
    """
    try:
        follows = recompute(manifest.certify, row, manifest.correction)
    except SmoothheadsError as error:
        return RowError(row.index, "votes", str(error))
    difference = contradiction(row.certificate, follows)
    # The code of the error is the name of the first number that differs.
    if difference is not None:
        return RowError(row.index, difference.partition(" ")[0], difference)
    if manifest.certify.budget == "table":
        return replace(row, certificate=replace(row.certificate, radius=follows.radius))
    return row


def format_time(seconds: float) -> str:
    """Returns H:MM:SS.fff."""
    full, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{full // 3600}:{full // 60 % 60:02d}:{full % 60:02d}.{thousandths:03d}"


def parse_time(text: str) -> float:
    """Returns the seconds of `16.6`, `0:00:12.844` or `1 day, 0:00:12`; raises ValueError otherwise."""
    # [[D day[s], ]H:MM:]SS[.fff]; what is missing counts as 0.
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"time {text!r}")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _sparse(votes: Votes) -> str:
    """Returns `class:count` of every class with votes; aggregations are separated by semicolons."""
    return ";".join(",".join(f"{c}:{row[c]}" for c in np.flatnonzero(row)) for row in votes.counts)


def _dense(text: str, aggregations: tuple[str, ...], classes: int) -> Votes:
    """Returns the votes that `_sparse` wrote."""
    votes = Votes.zeros(aggregations, classes)
    for counts, pairs in zip(votes.counts, text.split(";"), strict=True):
        for pair in filter(None, pairs.split(",")):
            label, count = pair.split(":")
            counts[int(label)] = int(count)
    return votes
