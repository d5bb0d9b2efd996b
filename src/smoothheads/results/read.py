"""Reads certification logs: our ledgers, and the six-column text files that everybody in the field writes."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from smoothheads import hub
from smoothheads.errors import LedgerError
from smoothheads.results import ledger
from smoothheads.results.manifest import FILE
from smoothheads.results.results import Results
from smoothheads.results.row import FIELD_COLUMNS, HEADER_1, parse_time

T = TypeVar("T")
_ENDINGS = (".tsv", ".txt", ".csv", ".log")  # others, as in `sigma_0.25`, belong to the name


def read_log(path: Path | str, *, damaged: bool = False) -> Results:
    """A ledger folder, its `ledger.tsv`, the folder of a run with a ledger in it, or any foreign file with
    the field's six columns.

    Accepts seconds or H:MM:SS in `time`, further columns, any order of columns, Windows newlines and a
    missing last newline. Raises LedgerError naming file, line and column for everything else, and for rows
    of a ledger that were changed or do not follow from their votes, unless `damaged` ones are asked for.
    """
    path = hub.local(path)
    if path.is_dir():
        return _read_ledger(ledger_folder(path), damaged)
    text = _text(path)
    if path.name == ledger.TABLE and text.startswith(HEADER_1) and (path.parent / FILE).exists():
        return _read_ledger(path.parent, damaged)
    return _read_foreign(path, text)


def as_results(sources: Sequence[Results | Path | str]) -> list[Results]:
    """What is in memory as it is, what is on the disk read."""
    paths = [source for source in sources if not isinstance(source, Results)]
    read = iter(read_logs(paths))
    return [source if isinstance(source, Results) else next(read) for source in sources]


def ledger_folder(path: Path | str) -> Path:
    """A ledger's folder, or the only one inside the folder of a run or an export; `hf://user/name[@revision]`
    stands for a copy of what is there."""
    path = hub.local(path)
    if (path / ledger.TABLE).exists() or not path.is_dir():
        return path
    inside = sorted(table.parent for table in path.glob(f"*/{ledger.TABLE}"))
    if len(inside) > 1 and path / "ledger" not in inside:
        names = ", ".join(folder.name for folder in inside)
        raise LedgerError(f"one ledger in {path}", f"{len(inside)} ({names})", "name one of them")
    return path / "ledger" if path / "ledger" in inside else (inside or [path])[0]


def read_logs(paths: Sequence[Path | str], names: Mapping[str, str] | None = None) -> list[Results]:
    """Each with a name of its own: as many parent folders are put before a name as tell it from the others,
    unless `names` says how the log at a path is to be called."""
    logs = [read_log(path) for path in paths]
    given = [(names or {}).get(str(path)) for path in paths]
    shown = distinct([_place(Path(path), log) for path, log in zip(paths, logs, strict=True)])
    return [replace(log, name=label or name) for log, label, name in zip(logs, given, shown, strict=True)]


def distinct(places: Sequence[tuple[str, ...]]) -> list[str]:
    """Names as short as can be that tell the places (folders from the outermost on, then the name) apart;
    equal places are numbered."""
    depths = [1] * len(places)
    while True:
        names = ["/".join(place[-depth:]) for place, depth in zip(places, depths, strict=True)]
        count = Counter(names)
        longer = [i for i, name in enumerate(names) if count[name] > 1 and depths[i] < len(places[i])]
        if not longer:
            break
        for i in longer:
            depths[i] += 1
    seen: Counter[str] = Counter()
    for i, name in enumerate(names):
        seen[name] += 1
        if count[name] > 1:
            names[i] = f"{name} ({seen[name]})"
    return names


def _place(path: Path, log: Results) -> tuple[str, ...]:
    where = hub.local(path).resolve()
    folder = ledger_folder(where) if where.is_dir() else where
    if folder.name == ledger.TABLE:
        folder = folder.parent
    return (*folder.parent.parts[1:], log.name)


def _read_ledger(folder: Path, damaged: bool) -> Results:
    contents = ledger.load(folder, damaged=damaged)
    if not contents.rows:
        raise LedgerError(f"certified images in {folder}", "none", "let the run certify some first")
    return Results.of(
        folder.resolve().name,
        contents.rows,
        contents.manifest,
        columns=_columns(folder / ledger.TABLE, "\n".join([HEADER_1, *contents.lines])),
        checked=contents.chain is not None,
        damage=tuple(contents.damage),
    )


def _read_foreign(path: Path, text: str) -> Results:
    columns = _columns(path, text)

    def parsed(name: str, parse: Callable[[str], T]) -> list[T]:
        return [_value(path, line, name, word, parse) for line, word in enumerate(columns[name], start=2)]

    stem = path.with_suffix("") if path.suffix == ".gz" else path
    return Results(
        name=stem.stem if stem.suffix in _ENDINGS else stem.name,
        index=np.array(parsed("idx", _whole)),
        label=np.array(parsed("label", _whole)),
        prediction=np.array(parsed("predict", _whole)),
        radius=np.array(parsed("radius", _finite)),
        seconds=np.array(parsed("time", parse_time)),
        noisy=np.array(parsed("noisy", _finite)) if "noisy" in columns else None,
        samples=np.array(parsed("samples", _whole)) if "samples" in columns else None,
        columns=columns,
        checked=False,
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
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise LedgerError(f"{path} is not a whole gzip file ({error}).") from error
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
