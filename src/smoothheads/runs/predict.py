"""Answers for pictures from elsewhere, one after the other, into a file that a killed run goes on with."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from smoothheads.certify.budgets import AnytimeBudget, Budget, TableBudget
from smoothheads.certify.certifier import Certifier
from smoothheads.config import parse_json
from smoothheads.data.inputs import Input
from smoothheads.errors import ConfigError, DataError, HeldError, StorageError
from smoothheads.files import append, storage, write_atomic
from smoothheads.types import ABSTAIN, Phase, Pixels, format_radius

Answer = dict[str, Any]

ABOUT_PICTURE: Final = ("image", "sha256", "class", "prediction", "share", "samples", "radius", "norm")
ABOUT_FUNCTION: Final = ("sigma", "n", "alpha", "aggregation", "mode", "weights", "function")
COLUMNS: Final = (*ABOUT_PICTURE, *ABOUT_FUNCTION, "error")


@dataclass(frozen=True, slots=True)
class Question:
    """The question about every picture.

    Args:
        radius: Certify a radius too. Without it the class alone is tested, which needs fewer samples.
        at_least: Stop as soon as this radius is certified or hopeless. Where it is not certified the answer
            abstains.
        seconds: Stop after this time, with what holds then.
    """

    radius: bool = False
    at_least: float | None = None
    seconds: float | None = None

    @property
    def mode(self) -> str:
        """Returns the question in a few words, for files of answers."""
        radius = "radius" if self.radius else "class"
        least = "" if self.at_least is None else f" >= {self.at_least:g}"
        return radius + least + ("" if self.seconds is None else f" within {self.seconds:g} s")

    def budget(self, certifier: Certifier) -> Budget | None:
        """Returns the budget that stops early, None where the certifier's own does."""
        n0, n = certifier.n0, certifier.n
        # A certificate that may be read at any moment is what a clock can stop.
        if self.seconds is not None:
            return AnytimeBudget(n0=n0, n=0, seconds=self.seconds, target=self.at_least)
        if self.at_least is not None:
            return TableBudget(n0=n0, n=n, radii=(self.at_least,))
        return None


def function_facts(certifier: Certifier, weights: str, question: Question) -> Answer:
    """Returns what must be the same for all answers in one file.

    Args:
        certifier: The smoothed classifier G.
        weights: The hash of the network's weights.
        question: What is asked about every picture.
    """
    config = certifier.config
    rest = [certifier.engine.describe(), certifier.law.name, config.block, certifier.n0, certifier.info.shape]
    facts = {
        "sigma": config.sigma,
        "n": certifier.n,
        "alpha": config.alpha,
        "aggregation": config.aggregation,
        "mode": question.mode,
        "weights": weights,
    }
    # Engine, noise and the rest decide the function too; their hash is enough to tell two of them apart.
    text = json.dumps([facts, rest], sort_keys=True, default=str)
    return facts | {"function": hashlib.sha256(text.encode()).hexdigest()[:16]}


def answer_pictures(
    certifier: Certifier, inputs: Iterator[Input], question: Question, answered: Mapping[str, str]
) -> Iterator[Answer | None]:
    """Yields an answer for every picture in order, with an `error` where it cannot be read, and None for a
    picture that was answered before.

    Args:
        certifier: The smoothed classifier.
        inputs: The pictures.
        question: What is asked about them.
        answered: Names of earlier pictures and the hashes of their pixels. Raises StorageError for a picture
            that has changed since.
    """
    budget = question.budget(certifier)
    if budget is not None:
        budget.check(certifier.params())
    for each in inputs:
        # One picture that cannot be read must not cost the answers for all others.
        try:
            image = each.read()
        except DataError as error:
            text = str(error)
            yield {"image": each.name, "error": text if each.name in text else f"{each.name}: {text}"}
            continue
        sha256 = hashlib.sha256(image.tobytes()).hexdigest()
        # The name alone does not tell: another picture may have taken its place.
        if (earlier := answered.get(each.name)) is None:
            answer = _answer(certifier, image, question, budget)
            yield {"image": each.name, "sha256": sha256} | answer
        elif earlier == sha256:
            yield None
        else:
            raise StorageError(f"{each.name} has changed since it was answered: write to another file.")


def _answer(certifier: Certifier, image: Pixels, question: Question, budget: Budget | None) -> Answer:
    config = certifier.config
    # PREDICT tests the class alone; CERTIFY, or a budget that stops early, gives a radius too.
    if budget is None and not question.radius:
        prediction, votes = certifier.predict(image)
        radius = None
    else:
        if budget is None:
            certified = certifier.certify_image(image)
            prediction, radius = certified.prediction, certified.radius
            # A budget may give up before the estimation has begun.
            counted = certified.votes if certified.votes.n else certified.selection
        else:
            for pending in certifier.steps(budget.run, image):
                last = pending
            prediction, radius = last.result.prediction, last.result.radius
            counted = last.votes(Phase.ESTIMATION)
        votes = counted.for_aggregation(config.aggregation)
    # The share is of the votes that the answer rests on; the radius is rounded down.
    answer: Answer = {
        "class": "abstain" if prediction == ABSTAIN else certifier.info.class_names[prediction],
        "prediction": int(prediction),
        "share": float(votes.max() / votes.sum()),
        "samples": int(votes.sum()),
    }
    if radius is not None:
        answer |= {"radius": float(format_radius(radius)), "norm": certifier.law.norm}
    return answer


class AnswerFile:
    """A .jsonl or .csv file of answers: a line is on the disk before the next picture is looked at.

    Every line states the function that answered, and a file holds the answers of one function.
    """

    def __init__(self, path: Path, facts: Answer) -> None:
        self.path, self._facts, self._is_csv = path, facts, path.suffix == ".csv"
        self._read_rows()  # refuses a file of others before anything is written beside it
        self.answered: dict[str, str] = {}
        """Names of the pictures that an earlier run has answered, and the hashes of their pixels."""

    @classmethod
    @contextmanager
    def open(cls, path: Path, facts: Answer) -> Iterator[AnswerFile]:
        """Opens the file for this process alone.

        Raises StorageError where another process writes it, where it holds something else, or where another
        function gave its answers.

        Args:
            path: The file, which is new or has answers.
            facts: What `function_facts` says about the function.
        """
        from filelock import FileLock, Timeout

        if path.suffix not in (".jsonl", ".csv"):
            raise ConfigError(f"{path} ends neither in .jsonl nor in .csv: choose one of the two.")
        file = cls(path, facts)
        with storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path.with_name(f".{path.name}.lock"))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise HeldError(f"Another process writes {path}: wait, or use another file.") from None
        try:
            file._start()
            with file._file:
                yield file
        finally:
            lock.release()

    def write(self, answer: Answer) -> None:
        """Writes an answer with the facts about the function."""
        stated = answer | self._facts
        append(self._file, self._line({name: stated[name] for name in COLUMNS if name in stated}), self.path)
        if "error" not in answer:
            self.answered[answer["image"]] = answer["sha256"]

    def _start(self) -> None:
        """Reads the answers of earlier runs and opens the file; the caller holds its lock."""
        # Another process may have written since this one looked.
        rows, is_torn = self._read_rows()
        answers = [row for row in rows if not row.get("error")]
        header = _csv_line(COLUMNS) if self._is_csv else b""
        # Errors are tried again, and a torn last line goes; a kill leaves the old file or the new one.
        if is_torn or len(answers) < len(rows) or not rows:
            write_atomic(self.path, header + b"".join(map(self._line, answers)))
        self.answered = {row["image"]: str(row["sha256"]) for row in answers}
        with storage(self.path):
            self._file = self.path.open("ab", buffering=0)

    def _read_rows(self) -> tuple[list[Answer], bool]:
        """Returns the rows of the file, and whether a torn line follows them; refuses a file of others."""
        with storage(self.path):
            data = self.path.read_bytes() if self.path.exists() else b""
        # What follows the last line break is the beginning of an answer that a kill cut off.
        complete, torn = data[: data.rfind(b"\n") + 1], data[data.rfind(b"\n") + 1 :]
        start = _csv_line(COLUMNS) if self._is_csv else b'{"image": "'
        try:
            if data[: len(start)] != start[: len(data)]:
                raise ValueError("another file")
            rows = self._parse(complete.decode())
        except (ValueError, KeyError, TypeError, ConfigError):
            raise StorageError(f"{self.path} has no answers of `predict`: use another file.") from None
        # Answers of two functions in one file would pass for answers of one.
        for row in rows:
            if other := [name for name in ABOUT_FUNCTION if str(row.get(name)) != str(self._facts[name])]:
                pairs = ", ".join(f"{name} {row.get(name)} instead of {self._facts[name]}" for name in other)
                raise StorageError(
                    f"{self.path} has answers of another function ({pairs}): use another file."
                )
        return rows, bool(torn)

    def _parse(self, text: str) -> list[Answer]:
        """Returns the rows of complete lines; ValueError or KeyError: `predict` did not write them."""
        if self._is_csv:
            table = csv.reader(io.StringIO(text))
            rows = [dict(zip(COLUMNS, words, strict=True)) for words in table][1:]
        else:
            rows = [parse_json(line, str(self.path)) for line in text.splitlines()]
        if not all(row.get("error") or (row["image"] and row["sha256"]) for row in rows):
            raise ValueError("another file")
        return rows

    def _line(self, answer: Answer) -> bytes:
        if self._is_csv:
            return _csv_line([answer.get(column, "") for column in COLUMNS])
        return json.dumps(answer).encode() + b"\n"


def _csv_line(words: Sequence[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(words)
    return out.getvalue().encode()
