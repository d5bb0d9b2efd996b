"""Reads certification logs: our ledgers, and the six-column text files that everybody in the field writes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from smoothheads import hub
from smoothheads.errors import LedgerError
from smoothheads.limits import read_unpacked
from smoothheads.results import ledger
from smoothheads.results.manifest import FILE
from smoothheads.results.results import Results
from smoothheads.results.row import COLUMNS, FIELD_COLUMNS, parse_time

T = TypeVar("T")
_ENDINGS = (".tsv", ".txt", ".csv", ".log")  # others, as in `sigma_0.25`, belong to the name


def read_log(path: Path | str, *, damaged: bool = False) -> Results:
    """Returns the certified images of a ledger, or of any file with the field's six columns.

    A ledger is named by its folder, its `ledger.tsv` or the run's folder that it lies in. Foreign files may
    have seconds or H:MM:SS in `time`, further columns, any order of columns, Windows newlines and no last
    newline, and may be packed (.gz). Raises a LedgerError that names file, row and column for everything
    else, and for rows of a ledger that were changed or do not follow from their votes.

    Args:
        path: The ledger or log, also as `hf://user/name[@revision]`.
        damaged: Whether such rows are let through, for an audit that lists them.
    """
    path = hub.local(path)
    if path.is_dir():
        return _read_ledger(ledger_folder(path), damaged)
    # A ledger's table beside its manifest is a ledger; without the manifest it is a log like any other.
    try:
        text = read_unpacked(path, "certification log", LedgerError).decode()
    except UnicodeDecodeError as error:
        raise LedgerError(f"{path} is not text; point at a certification log.") from error
    if path.name == ledger.TABLE and text.startswith("\t".join(COLUMNS)) and (path.parent / FILE).exists():
        return _read_ledger(path.parent, damaged)
    return _read_foreign(path, text)


def ledger_folder(path: Path | str) -> Path:
    """Returns the folder of a ledger: the path itself, or the only ledger in a run's or export's folder."""
    path = hub.local(path)
    if (path / ledger.TABLE).exists() or not path.is_dir():
        return path
    # A run's own ledger comes before others in its folder, such as those that were certified again.
    inside = sorted(table.parent for table in path.glob(f"*/{ledger.TABLE}"))
    if path / "ledger" in inside:
        return path / "ledger"
    if len(inside) > 1:
        names = ", ".join(folder.name for folder in inside)
        raise LedgerError(f"{path} holds {len(inside)} ledgers ({names}); name one of them.")
    return (inside or [path])[0]


def read_logs(
    sources: Sequence[Results | Path | str], names: Mapping[str, str] | None = None
) -> list[Results]:
    """Returns logs whose names differ; results in memory are taken as they are.

    Logs of one name get as much of their paths as tells them apart, or a number if nothing does.

    Args:
        sources: Ledgers, logs and results.
        names: How logs are to be called, by their paths.
    """
    logs = [source if isinstance(source, Results) else read_log(source) for source in sources]
    shown = [log.name for log in logs]
    for name in [name for name, count in Counter(shown).items() if count > 1]:
        # The paths of the logs of this name, without what all of them begin with.
        named = [(i, source) for i, source in enumerate(sources) if logs[i].name == name]
        paths = {i: hub.local(each).resolve() for i, each in named if not isinstance(each, Results)}
        for i, path in paths.items():
            own = path.relative_to(os.path.commonpath(paths.values()))
            shown[i] = str(own.with_suffix("") if own.suffix in _ENDINGS else own)
            shown[i] = name if shown[i] == "." else shown[i]
    # What still shares a name, such as results in memory, is numbered.
    count, seen = Counter(shown), Counter[str]()
    for i, name in enumerate(shown):
        seen[name] += 1
        shown[i] = name if count[name] == 1 else f"{name} ({seen[name]})"
    given = [(names or {}).get(str(source)) for source in sources]
    return [replace(log, name=own or name) for log, own, name in zip(logs, given, shown, strict=True)]


def _read_ledger(folder: Path, damaged: bool) -> Results:
    contents = ledger.load(folder, damaged=damaged)
    if not contents.rows:
        raise LedgerError(f"{folder} has no certified images yet; let the run certify some first.")
    return Results.of(folder.resolve().name, contents.rows, contents.manifest, contents.errors)


def _read_foreign(path: Path, text: str) -> Results:
    """Returns a log without a manifest; of what it does not state nothing is guessed."""
    columns = _columns(path, text)

    def parsed(name: str, parse: Callable[[str], T]) -> list[T]:
        values = []
        for row, word in enumerate(columns[name], start=2):
            try:
                values.append(parse(word))
            except (ValueError, OverflowError) as error:
                raise LedgerError(f"{name} in row {row} of {path} is {word!r}; mend or drop it.") from error
        return values

    # The name of the log is that of its file, without what says how it is stored.
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    return Results(
        name=stem.stem if stem.suffix in _ENDINGS else stem.name,
        index=np.array(parsed("idx", _integer)),
        label=np.array(parsed("label", _integer)),
        prediction=np.array(parsed("predict", _integer)),
        radius=np.array(parsed("radius", _finite)),
        seconds=np.array(parsed("time", parse_time)),
        noisy=np.array(parsed("noisy", _finite)) if "noisy" in columns else None,
        samples=np.array(parsed("samples", _integer)) if "samples" in columns else None,
        columns=columns,
    )


def _columns(path: Path, text: str) -> dict[str, tuple[str, ...]]:
    """Returns the words of every column of a table."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise LedgerError(f"{path} is an empty file; point at a certification log.")
    # The header names the columns in any order; a byte order mark is no part of it.
    names = [name.strip() for name in lines[0].lstrip("\ufeff").split("\t")]
    if missing := [name for name in FIELD_COLUMNS if name not in names]:
        raise LedgerError(
            f"{path} is no certification log: its first line {lines[0][:60]!r} lacks {', '.join(missing)}."
        )
    if len(lines) == 1:
        raise LedgerError(f"{path} has only a header; certify some images first.")
    table = [[word.strip() for word in line.split("\t")] for line in lines[1:]]
    for number, words in enumerate(table, start=2):
        if len(words) < len(names):
            raise LedgerError(
                f"Row {number} of {path} has {len(words)} of {len(names)} columns; mend or drop it."
            )
    return {name: tuple(words[i] for words in table) for i, name in enumerate(names)}


def _integer(word: str) -> int:
    # Some scripts write 3.0; above 2^53 a float is not exact.
    value = float(word)
    if value != int(value) or abs(value) > 2**53:
        raise ValueError(word)
    return int(value)


def _finite(word: str) -> float:
    value = float(word)
    if not np.isfinite(value):
        raise ValueError(word)
    return value
