"""Answers for pictures from elsewhere, one after the other, into a file that a killed run goes on with."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from smoothheads.certify.budgets import AnytimeBudget, Budget, TableBudget
from smoothheads.certify.certifier import Certifier
from smoothheads.config import parse_json
from smoothheads.data import Input
from smoothheads.errors import ConfigError, DataError, StorageError
from smoothheads.files import append, storage, write_atomic
from smoothheads.types import ABSTAIN, Phase, Pixels, format_radius

Answer = dict[str, Any]

COLUMNS: Final = ("image", "class", "prediction", "share", "n", "sigma", "alpha", "radius", "norm", "error")
SETTINGS: Final = ("sigma", "alpha", "norm")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted for every picture."""

    radius: bool = False
    """Certify a radius; without it the class alone is tested, which needs fewer samples."""
    at_least: float | None = None
    """Stop as soon as this radius is shown or hopeless; where it is not shown the answer abstains."""
    seconds: float | None = None
    """Say what holds after that time."""

    def budget(self, certifier: Certifier) -> Budget | None:
        """None: the certifier's own."""
        n0, n = certifier.n0, certifier.n
        if self.seconds is not None:
            return AnytimeBudget(n0=n0, n=None, seconds=self.seconds, target=self.at_least)
        if self.at_least is not None:
            return TableBudget(n0=n0, n=n, radii=(self.at_least,))
        return None


def answers(certifier: Certifier, inputs: Iterator[Input], asked: Asked) -> Iterator[Answer]:
    """An answer for every picture, in order; one that cannot be read has an `error` instead of a class."""
    budget = asked.budget(certifier)
    if budget is not None:
        budget.check(certifier.terms(0))
    for each in inputs:
        try:
            image = each.read()
        except DataError as error:
            told = str(error)
            yield {"image": each.name, "error": told if each.name in told else f"{each.name}: {told}"}
            continue
        yield {"image": each.name} | _answer(certifier, image, asked, budget)


def _answer(certifier: Certifier, image: Pixels, asked: Asked, budget: Budget | None) -> Answer:
    radius: float | None = None
    if budget is not None:
        for flight in certifier.steps(budget.run, image):
            last = flight
        prediction, radius = last.result.prediction, last.result.radius
        counted = last.votes(Phase.ESTIMATION)
    elif asked.radius:
        certified = certifier.certify_image(image)
        prediction, radius = certified.prediction, certified.radius
        counted = certified.votes if certified.votes.n else certified.selection  # it may give up at once
    else:
        prediction, votes = certifier.predict(image)
    if radius is not None:
        votes = counted.for_aggregation(certifier.config.aggregation)
    config = certifier.config
    answer: Answer = {
        "class": "abstain" if prediction == ABSTAIN else certifier.info.class_names[prediction],
        "prediction": int(prediction),
        "share": float(votes.max() / votes.sum()),
        "n": int(votes.sum()),
        "sigma": config.sigma,
        "alpha": config.alpha,
    }
    if radius is not None:
        answer |= {"radius": float(format_radius(radius)), "norm": certifier.law.norm}
    return answer


class AnswerFile:
    """A .jsonl or .csv file of answers: a line is on the disk before the next picture is looked at."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in (".jsonl", ".csv"):
            raise ConfigError("an output file *.jsonl or *.csv", str(path), "choose one of the endings")
        self.path = path
        self.rows = self._earlier(path)
        with storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
        if path.suffix == ".csv" and not self._file.tell():
            append(self._file, _csv_line(COLUMNS), path)

    @property
    def done(self) -> set[str]:
        """Names of the pictures that an earlier run has answered for; errors are tried again."""
        return {row["image"] for row in self.rows if not row.get("error")}

    def write(self, answer: Answer) -> None:
        for row in self.rows[:1]:
            told = {key: (row.get(key), answer.get(key)) for key in SETTINGS if key in answer}
            if not answer.get("error") and any(str(a or "") != str(b or "") for a, b in told.values()):
                got = ", ".join(f"{key} {b}" for key, (_, b) in told.items())
                raise StorageError(f"answers like those in {self.path}", got, "use another file")
        append(self._file, self._line(answer), self.path)

    def close(self) -> None:
        self._file.close()

    def _earlier(self, path: Path) -> list[Answer]:
        """Whole answers of a run that was interrupted; errors and a torn last line are dropped."""
        with storage(path):
            data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        try:
            rows = _parse(whole, path)
            _require_torn(data[len(whole) :], path, first=not whole)
        except (ValueError, KeyError, ConfigError):
            raise StorageError(
                f"answers of `smoothheads predict` in {path}", "something else", "use another file"
            ) from None
        kept = [row for row in rows if not row.get("error")]
        if len(whole) < len(data) or len(kept) < len(rows):
            header = _csv_line(COLUMNS) if path.suffix == ".csv" else b""
            write_atomic(path, header + b"".join(map(self._line, kept)))
        return kept

    def _line(self, answer: Answer) -> bytes:
        if self.path.suffix == ".csv":
            return _csv_line([answer.get(column, "") for column in COLUMNS])
        return json.dumps(answer).encode() + b"\n"


def _require_torn(line: bytes, path: Path, *, first: bool) -> None:
    """Raises ValueError unless a line without an end is the beginning of one of ours."""
    start = b'{"image": "' if path.suffix == ".jsonl" else _csv_line(COLUMNS) if first else b""
    if line[: len(start)] != start[: len(line)]:
        raise ValueError("another file")


def _parse(data: bytes, path: Path) -> list[Answer]:
    text = data.decode()
    if path.suffix == ".jsonl":
        rows = [parse_json(line, str(path)) for line in text.splitlines()]
    else:
        table = list(csv.reader(io.StringIO(text)))
        if table and tuple(table[0]) != COLUMNS:
            raise ValueError("another header")
        rows = [dict(zip(COLUMNS, words, strict=True)) for words in table[1:]]
    if any(not isinstance(row["image"], str) or not row.keys() <= set(COLUMNS) for row in rows):
        raise ValueError("another file")
    return rows


def _csv_line(words: Sequence[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(words)
    return out.getvalue().encode()
