"""Reads certification logs: our ledgers, and the six-column text files that everybody in the field writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from smoothheads.errors import LedgerError
from smoothheads.results import ledger
from smoothheads.results.log import Log
from smoothheads.results.manifest import setting
from smoothheads.results.row import FIELD_COLUMNS, HEADER, parse_time

T = TypeVar("T")
_ENDINGS = (".tsv", ".txt", ".csv", ".log")  # others, as in `sigma_0.25`, belong to the name


def read_log(path: Path) -> Log:
    """A ledger folder, its `ledger.tsv`, or any foreign file with the field's six columns.

    Accepts seconds or H:MM:SS in `time`, further columns, any order of columns, Windows newlines and a
    missing last newline. Raises LedgerError naming file, line and column for everything else.
    """
    if path.is_dir():
        return _read_ledger(path)
    text = _text(path)
    if path.name == ledger.TABLE and text.startswith(HEADER) and (path.parent / ledger.MANIFEST).exists():
        return _read_ledger(path.parent)
    return _read_foreign(path, text)


def read_logs(paths: Sequence[Path]) -> list[Log]:
    """Each with a name of its own: the parent folder is put before equal names."""
    logs = [read_log(path) for path in paths]
    count = Counter(log.name for log in logs)
    where = [path.resolve() for path in paths]
    parents = [p.parent.parent if p.name == ledger.TABLE else p.parent for p in where]
    return [
        replace(log, name=f"{parent.name}/{log.name}") if count[log.name] > 1 else log
        for log, parent in zip(logs, parents, strict=True)
    ]


def _read_ledger(folder: Path) -> Log:
    manifest, rows, lines = ledger.load(folder)
    if not rows:
        raise LedgerError(f"certified images in {folder}", "none", "let the run certify some first")
    return Log(
        name=folder.resolve().name,
        index=np.array([row.index for row in rows]),
        label=np.array([row.label for row in rows]),
        prediction=np.array([row.prediction for row in rows]),
        radius=np.array([row.radius for row in rows]),
        seconds=np.array([row.seconds for row in rows]),
        sigma=setting(manifest, "sigma"),
        alpha=setting(manifest, "alpha"),
        n=setting(manifest, "n"),
        n0=setting(manifest, "n0"),
        manifest=manifest,
        rows=tuple(rows),
        columns=_columns(folder / ledger.TABLE, "\n".join([HEADER, *lines])),
    )


def _read_foreign(path: Path, text: str) -> Log:
    columns = _columns(path, text)

    def parsed(name: str, parse: Callable[[str], T]) -> list[T]:
        return [_value(path, line, name, word, parse) for line, word in enumerate(columns[name], start=2)]

    return Log(
        name=path.stem if path.suffix in _ENDINGS else path.name,
        index=np.array(parsed("idx", _whole)),
        label=np.array(parsed("label", _whole)),
        prediction=np.array(parsed("predict", _whole)),
        radius=np.array(parsed("radius", _finite)),
        seconds=np.array(parsed("time", parse_time)),
        columns=columns,
    )


def _columns(path: Path, text: str) -> dict[str, tuple[str, ...]]:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise LedgerError(f"a certification log in {path}", "an empty file", "certify first")
    names = [name.strip() for name in lines[0].lstrip("\ufeff").split("\t")]
    missing = [name for name in FIELD_COLUMNS if name not in names]
    if missing:
        raise LedgerError(
            f"a tab-separated header with {' '.join(FIELD_COLUMNS)} in {path}",
            f"{lines[0][:60]!r} without {', '.join(missing)}",
            "point at a certification log",
        )
    if len(lines) == 1:
        raise LedgerError(f"certified images in {path}", "only a header", "certify first")
    table = [[word.strip() for word in line.split("\t")] for line in lines[1:]]
    for number, words in enumerate(table, start=2):
        if len(words) < len(names):
            raise LedgerError(
                f"{len(names)} columns in row {number} of {path}", str(len(words)), "drop the damaged row"
            )
    return {name: tuple(words[i] for words in table) for i, name in enumerate(names)}


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise LedgerError(f"a certification log at {path}", str(error.strerror), "check the path") from error
    except UnicodeDecodeError as error:
        raise LedgerError(f"text in {path}", "something else", "point at a certification log") from error


def _value(path: Path, line: int, name: str, word: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(word)
    except (ValueError, OverflowError) as error:
        raise LedgerError(
            f"a value of {name} in row {line} of {path}", repr(word), "drop or mend the damaged row"
        ) from error


def _whole(word: str) -> int:
    value = float(word)
    if value != int(value) or abs(value) > 2**53:
        raise ValueError(word)
    return int(value)


def _finite(word: str) -> float:
    value = float(word)
    if not np.isfinite(value):
        raise ValueError(word)
    return value
