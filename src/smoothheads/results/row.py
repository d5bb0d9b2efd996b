"""One certified image as a line of text: the field's six columns first, then what nobody else keeps."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.radius import format_radius
from smoothheads.errors import SoundnessError
from smoothheads.types import ABSTAIN, Certificate, Votes

if TYPE_CHECKING:
    from smoothheads.certify.smoothed import Certified

FIELD_COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
COLUMNS = (*FIELD_COLUMNS, "n0", "n", "k", "p_lower", "selection", "votes")
HEADER = "\t".join(COLUMNS)
_NO_VOTES = "-"
_TIME = re.compile(r"(?:(?:(\d+) days?, )?(\d+):(\d\d?):)?(\d+(?:\.\d*)?(?:e-?\d+)?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Row:
    """`radius` is in pixel units and 0 for an abstention; raises SoundnessError where it is not a radius."""

    index: int
    label: int
    prediction: int
    radius: float
    seconds: float
    n0: int
    n: int
    k: int
    p_lower: float
    selection: Votes | None = None
    votes: Votes | None = None

    def __post_init__(self) -> None:
        sound = math.isfinite(self.radius) and self.radius >= 0 and 0 <= self.p_lower <= 1
        if not sound or (self.abstained and self.radius > 0):
            raise SoundnessError(
                "a finite radius >= 0, and 0 for an abstention",
                f"radius {self.radius}, p_lower {self.p_lower}, prediction {self.prediction} "
                f"for image {self.index}",
                "this certificate is wrong; report how it came about",
            )

    @classmethod
    def of(cls, certified: Certified) -> Row:
        certificate = certified.certificate
        return cls(
            index=certified.index,
            label=certified.label,
            prediction=certificate.prediction,
            radius=certificate.radius,
            seconds=certified.seconds,
            n0=certificate.n0,
            n=certificate.n,
            k=certificate.k,
            p_lower=certificate.p_lower,
            selection=certified.selection,
            votes=certified.votes,
        )

    @property
    def correct(self) -> bool:
        return self.prediction == self.label

    @property
    def abstained(self) -> bool:
        return self.prediction == ABSTAIN

    @property
    def certificate(self) -> Certificate:
        return Certificate(self.prediction, self.radius, self.p_lower, self.k, self.n, self.n0)


def to_line(row: Row) -> str:
    """Without the newline. Radius and p_lower are rounded down: the text never claims more than the row."""
    field = (row.index, row.label, row.prediction, format_radius(row.radius), int(row.correct))
    counts = (row.n0, row.n, row.k, _floor(row.p_lower))
    texts = (*field, format_time(row.seconds), *counts, _sparse(row.selection), _sparse(row.votes))
    return "\t".join(str(text) for text in texts)


def from_line(line: str, rules: tuple[str, ...], classes: int) -> Row:
    """Raises ValueError for anything that `to_line` would not have written."""
    texts = line.split("\t")
    if len(texts) != len(COLUMNS):
        raise ValueError(f"{len(texts)} columns")
    get = dict(zip(COLUMNS, texts, strict=True))
    try:
        row = Row(
            index=int(get["idx"]),
            label=int(get["label"]),
            prediction=int(get["predict"]),
            radius=float(get["radius"]),
            seconds=parse_time(get["time"]),
            n0=int(get["n0"]),
            n=int(get["n"]),
            k=int(get["k"]),
            p_lower=float(get["p_lower"]),
            selection=_dense(get["selection"], rules, classes),
            votes=_dense(get["votes"], rules, classes),
        )
    except SoundnessError as error:
        raise ValueError(error.got) from error
    if get["correct"] != str(int(row.correct)):
        raise ValueError(f"correct {get['correct']} for label {row.label}, predict {row.prediction}")
    return row


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


def _floor(probability: float) -> str:
    return f"{Decimal(probability).quantize(Decimal('1e-15'), rounding=ROUND_FLOOR):f}"


def _sparse(votes: Votes | None) -> str:
    if votes is None:
        return _NO_VOTES
    return ";".join(",".join(f"{c}:{row[c]}" for c in np.flatnonzero(row)) for row in votes.counts)


def _dense(text: str, rules: tuple[str, ...], classes: int) -> Votes | None:
    if text == _NO_VOTES:
        return None
    per_rule = text.split(";")
    if len(per_rule) != len(rules):
        raise ValueError(f"votes of {len(per_rule)} rules instead of {len(rules)}")
    counts: NDArray[np.int64] = np.zeros((len(rules), classes), dtype=np.int64)
    for rule, pairs in enumerate(per_rule):
        for pair in filter(None, pairs.split(",")):
            label, count = pair.split(":")
            if not 0 <= int(label) < classes or int(count) < 1 or counts[rule, int(label)]:
                raise ValueError(f"votes {pair!r}")
            counts[rule, int(label)] = int(count)
    return Votes(rules, counts)
