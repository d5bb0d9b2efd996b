"""One certified image as a line of text: the field's six columns first, then what nobody else keeps."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothheads.errors import SoundnessError
from smoothheads.types import ABSTAIN, Certificate, Certified, Votes, format_radius

FIELD_COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
COLUMNS = (*FIELD_COLUMNS, "n0", "n", "k", "p_lower", "selection", "votes")
CHECKS = ("check", "chain")
HEADER = "\t".join((*COLUMNS, *CHECKS))
HEADER_1 = "\t".join(COLUMNS)
"""Of version 1, which had no checksums."""
_TIME = re.compile(r"(?:(?:(\d+) days?, )?(\d+):(\d\d?):)?(\d+(?:\.\d*)?(?:e-?\d+)?)", re.ASCII)


def to_line(row: Certified) -> str:
    """Without the newline. Radius and p_lower are rounded down: the text never claims more than the row."""
    sure = row.certificate
    field = (row.index, row.label, row.prediction, format_radius(row.radius), int(row.correct))
    counts = (sure.n0, sure.n, sure.k, format_radius(sure.p_lower, 15))
    texts = (*field, format_time(row.seconds), *counts, _sparse(row.selection), _sparse(row.votes))
    return "\t".join(str(text) for text in texts)


def from_line(
    line: str, aggregations: tuple[str, ...], classes: int, *, label_aware: bool = False
) -> Certified:
    """Raises ValueError for anything that `to_line` would not have written."""
    texts = line.split("\t")
    if len(texts) != len(COLUMNS):
        raise ValueError(f"{len(texts)} columns")
    get = dict(zip(COLUMNS, texts, strict=True))
    certificate = Certificate(
        prediction=int(get["predict"]),
        radius=float(get["radius"]),
        p_lower=float(get["p_lower"]),
        k=int(get["k"]),
        n=int(get["n"]),
        n0=int(get["n0"]),
        label_aware=label_aware,
    )
    selection, votes = (_dense(get[name], aggregations, classes) for name in ("selection", "votes"))
    try:
        row = Certified(
            int(get["idx"]), int(get["label"]), certificate, selection, votes, parse_time(get["time"])
        )
    except SoundnessError as error:
        raise ValueError(str(error)) from error
    if not (0 <= row.label < classes and ABSTAIN <= row.prediction < classes and 0 <= row.index < 2**63):
        raise ValueError(f"index {row.index}, label {row.label}, predict {row.prediction}")
    if get["correct"] != str(int(row.correct)):
        raise ValueError(f"correct {get['correct']} for label {row.label}, predict {row.prediction}")
    return row


@dataclass(frozen=True, slots=True)
class Checksums:
    """The checksums of a ledger: `check` is that of the row, `chain` that of all rows so far. Both leave out
    the time, so that a run that was interrupted has the bytes of one that was not."""

    last: str = ""
    """`chain` of the row before."""

    def seal(self, line: str) -> str:
        """The line with its two checksums."""
        words = line.split("\t")
        del words[COLUMNS.index("time")]
        check = _short("\t".join(words))
        return f"{line}\t{check}\t{_short(self.last + check)}"

    def after(self, sealed: str) -> Checksums:
        return Checksums(sealed.rpartition("\t")[2])

    def broken(self, sealed: str) -> str | None:
        """What a sealed line shows, in words; None if it is as it was written, after the one before it."""
        line, check, _ = sealed.rsplit("\t", 2)
        again = self.seal(line)
        if again == sealed:
            return None
        if again.split("\t")[-2] != check:
            return "it was changed after it was written"
        return "rows before it are missing, doubled or in another order"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def format_time(seconds: float) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}.{thousandths:03d}"


def parse_time(text: str) -> float:
    """Seconds of `16.6`, `0:00:12.844` or `1 day, 0:00:12`; raises ValueError for anything else."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"time {text!r}")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _sparse(votes: Votes) -> str:
    return ";".join(",".join(f"{c}:{row[c]}" for c in np.flatnonzero(row)) for row in votes.counts)


def _dense(text: str, aggregations: tuple[str, ...], classes: int) -> Votes:
    per_aggregation = text.split(";")
    if len(per_aggregation) != len(aggregations):
        raise ValueError(f"votes of {len(per_aggregation)} aggregations instead of {len(aggregations)}")
    counts: NDArray[np.int64] = np.zeros((len(aggregations), classes), dtype=np.int64)
    for aggregation, pairs in enumerate(per_aggregation):
        for pair in filter(None, pairs.split(",")):
            label, count = pair.split(":")
            if not 0 <= int(label) < classes or int(count) < 1 or counts[aggregation, int(label)]:
                raise ValueError(f"votes {pair!r}")
            counts[aggregation, int(label)] = int(count)
    return Votes(aggregations, counts)
