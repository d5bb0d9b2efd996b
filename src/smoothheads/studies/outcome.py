"""What a study found: its rows with their measurements, read from the store or from a folder that was kept.

The folder holds `study.json` and a compressed table per row, enough to recompute every number and interval
without training or certifying anything.
"""

from __future__ import annotations

import gzip
import hashlib
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from smoothheads.config import load_json, to_dict
from smoothheads.errors import LedgerError, SmoothheadsError, StorageError
from smoothheads.files import exclusive, has_stamp, reserve, write_atomic, write_json
from smoothheads.provenance import versions
from smoothheads.studies import reading
from smoothheads.studies.plan import Joining, Network, Row, RowName, StudyPlan
from smoothheads.studies.reading import Measured
from smoothheads.studies.spec import certify_config
from smoothheads.studies.store import StudyStore

FORMAT = "smoothheads-study/1"
FACTS, ROWS = "study.json", "rows"
_COLUMNS = ("index", "label", "prediction", "radius", "noisy", "samples", "seconds")
_REAL = ("radius", "noisy", "seconds")
_WHO = ("setting", "sigma", "arm", "seed")


@dataclass(frozen=True, slots=True)
class Result(RowName):
    """What was measured of a row (none if it failed or is not there), and what is known of it."""

    measured: Measured | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Fit of the training set, size, seconds, memory, hashes; `failed` holds the message of a failure."""


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    title: str
    arms: Mapping[str, str]
    """How each is shown."""
    radii: tuple[float, ...]
    differences: tuple[tuple[str, str], ...]
    results: tuple[Result, ...]
    certify: Mapping[str, Any] = field(default_factory=dict)
    made_by: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What an experiment measures beside its rows."""

    def groups(self) -> list[tuple[str, float]]:
        """Settings and sigmas, in their order."""
        return list(dict.fromkeys((each.setting, each.sigma) for each in self.results))

    def of(self, setting: str, sigma: float, arm: str) -> dict[int, Result]:
        """The measured rows of an arm, by seed."""
        cell = (setting, sigma, arm)
        return {each.seed: each for each in self.results if each.cell == cell and each.measured is not None}

    @property
    def several(self) -> bool:
        """Whether there is more than one setting, so that they have to be named."""
        return len({each.setting for each in self.results}) > 1

    def has_failed(self, setting: str, sigma: float, arm: str) -> bool:
        return any("failed" in each.facts for each in self.results if each.cell == (setting, sigma, arm))

    @property
    def failed(self) -> dict[str, str]:
        return {each.name: each.facts["failed"] for each in self.results if "failed" in each.facts}


def measured(results: Iterable[Result]) -> list[Measured]:
    return [each.measured for each in results if each.measured is not None]


Kept: TypeAlias = Mapping[tuple[str, str], Result]
"""Rows of folders that were kept, by ledger and rule; what is there need not be made again."""


def collect(
    plan: StudyPlan, store: StudyStore, failed: Mapping[str, str] | None = None, kept: Kept | None = None
) -> Outcome:
    """What the store holds of a plan, and what it lacks from what was kept."""
    study = plan.study
    return Outcome(
        name=study.name,
        title=study.title,
        arms={arm.name: arm.title for arm in study.arms},
        radii=study.show.radii,
        differences=study.differences,
        results=tuple(_result(row, store, failed or {}, kept or {}) for row in plan.rows),
        certify={**study.certify, "images": to_dict(study.images)},
        made_by=versions() | {"machine": platform.machine()},
    )


def claim_folder(folder: Path) -> None:
    """Raises StorageError unless a study may be kept there; worth asking before a long run."""
    reserve(folder, lambda there: has_stamp(there / FACTS, FORMAT))


def require_same_study(folder: Path, rows: Mapping[str, tuple[str, str]]) -> Kept:
    """What is kept there. Raises StorageError where measured rows would be lost: of arms, sigmas or seeds
    that are not among these (ledger and rule by the row's name), or all of them certified or trained
    otherwise. Worth asking before a long run."""
    there: Kept = {}
    with suppress(SmoothheadsError):  # nothing yet, or damaged
        there = _rows(folder)
    lost = [row.name for row in there.values() if row.name not in rows]
    if there and not lost and not there.keys() & set(rows.values()):
        lost = [row.name for row in there.values()]
    if lost:
        remedy = "choose another folder, or remove this one if it is no longer wanted"
        got = f"{len(lost)} of another study or of other settings, the first {lost[0]}"
        raise StorageError(f"only rows of this study in {folder}", got, remedy)
    return there


def save(outcome: Outcome, folder: Path) -> None:
    """Writes the folder anew, rows that are the same to the same bytes. What another study has kept there
    meanwhile of rows that this one has not made yet stays; a damaged folder is mended. Raises StorageError
    where measured rows would be lost."""
    claim_folder(folder)
    with exclusive(folder, wait=True):
        there = require_same_study(folder, {each.name: _votes(each) for each in outcome.results})
        _write(replace(outcome, results=tuple(_made(each, there) for each in outcome.results)), folder)


def _made(result: Result, there: Kept) -> Result:
    """The row itself, or where it is not made yet the one that is there, of the same ledger and rule."""
    same = there.get(_votes(result)) if result.measured is None and "failed" not in result.facts else None
    return result if same is None else replace(result, measured=same.measured, facts=same.facts)


def _votes(result: Result) -> tuple[str, str]:
    """Ledger and rule; nobody's where they are not known."""
    return result.facts.get("ledger", ""), result.facts.get("rule", "")


def _write(outcome: Outcome, folder: Path) -> None:
    table = []
    for result in outcome.results:
        entry = {name: getattr(result, name) for name in _WHO} | {"facts": dict(result.facts)}
        if result.measured is not None:
            data = gzip.compress(_text(result.measured).encode(), mtime=0)
            entry["rows"] = _digest(data)
            path = folder / ROWS / f"{entry['rows']}.tsv.gz"
            if not path.is_file() or path.read_bytes() != data:  # or was damaged
                write_atomic(path, data)
        table.append(entry)
    known = {f"{entry['rows']}.tsv.gz" for entry in table if "rows" in entry}
    rest = {name: value for name, value in asdict(replace(outcome, results=())).items() if name != "results"}
    arms = [list(pair) for pair in outcome.arms.items()]  # their order counts
    write_json(folder / FACTS, {"format": FORMAT, **rest, "arms": arms, "results": table})
    for path in (folder / ROWS).glob("*.tsv.gz"):
        if path.name not in known and path.name == f"{_digest(path.read_bytes())}.tsv.gz":  # ours
            path.unlink()


def load(folder: Path) -> Outcome:
    """Raises LedgerError where a file is damaged, or a radius does not follow from its votes."""
    data = load_json(folder / FACTS)
    if data.get("format") != FORMAT:
        raise LedgerError(f"the results of a study in {folder}", repr(data.get("format")), "check the path")
    try:
        outcome = _loaded(data, folder)
        for result in outcome.results:
            _require_evidence(result, outcome.certify, folder)
        return outcome
    except (KeyError, TypeError, ValueError) as error:
        got = f"{type(error).__name__}: {error}"
        raise LedgerError(f"the results of a study in {folder}", got, "keep it again") from None


def _loaded(data: Mapping[str, Any], folder: Path) -> Outcome:
    results = [
        Result(
            **{name: entry[name] for name in _WHO},
            measured=_measured(folder / ROWS / f"{entry['rows']}.tsv.gz") if "rows" in entry else None,
            facts=entry["facts"],
        )
        for entry in data["results"]
    ]
    return Outcome(
        name=data["name"],
        title=data["title"],
        arms=dict(data["arms"]),
        radii=tuple(data["radii"]),
        differences=tuple((a, b) for a, b in data["differences"]),
        results=tuple(results),
        certify=data["certify"],
        made_by=data["made_by"],
        extra=data.get("extra", {}),
    )


def _require_evidence(result: Result, certify: Mapping[str, Any], folder: Path) -> None:
    """Of rows that were certified here; the logs of others have no votes."""
    if result.measured is None or "ledger" not in result.facts:
        return
    told = {name: value for name, value in certify.items() if name != "images"}
    config = certify_config(told, result.sigma)
    if len(wrong := result.measured.contradicted(config)):
        got = f"{len(wrong)} others in {result.name}, the first of image {wrong[0]}"
        remedy = "the rows were changed; certify and keep them again, in another folder"
        raise LedgerError(f"radii that follow from their votes in {folder}", got, remedy)


def kept(*folders: Path, on_damaged: Callable[[SmoothheadsError], None] | None = None) -> Kept:
    """The measured rows in these folders, which need not be there yet, and in the studies beside them: a row
    that two studies show is made once, even where the store is gone.

    Raises LedgerError where one of the folders is damaged; of one beside them the rows are left out.
    """
    beside = {path.parent for folder in folders for path in folder.parent.glob(f"*/{FACTS}")} - {*folders}
    found: dict[tuple[str, str], Result] = {}
    for folder in sorted(beside):
        try:
            found |= _rows(folder)
        except SmoothheadsError as error:  # of others, or damaged
            if on_damaged is not None:
                on_damaged(error)
    for folder in folders:
        if (folder / FACTS).is_file():
            found |= _rows(folder)
    return found


def _rows(folder: Path) -> Kept:
    rows = [each for each in load(folder).results if each.measured is not None and "ledger" in each.facts]
    return {_votes(each): each for each in rows}


def _result(row: Row, store: StudyStore, failed: Mapping[str, str], kept: Kept) -> Result:
    who = (row.setting, row.sigma, row.arm, row.seed)
    if store.facts(row.certification) is None and (before := kept.get(row.votes)) is not None:
        return Result(*who, before.measured, {**before.facts, **_size(row)})
    items = (*_trainings(row.network), row.network, row.certification)
    broken = [failed.get(item.key) or store.failure(item) for item in items if store.facts(item) is None]
    message = next((text for text in broken if text), None)
    if message is not None:
        return Result(*who, None, {"failed": message})
    done = store.facts(row.certification)
    if done is None:
        return Result(*who, None, {"ledger": row.votes[0], "rule": row.votes[1]})
    try:
        votes = reading.read(store.artefact(row.certification), row.aggregation)
    except SmoothheadsError as error:
        if (before := kept.get(row.votes)) is not None:
            return Result(*who, before.measured, {**before.facts, **_size(row)})
        return Result(*who, None, {"failed": str(error)})
    return Result(*who, votes, _facts(row, store, done) | _size(row))


def _size(row: Row) -> dict[str, Any]:
    """Counted, not read: rows that were kept before this was do not have it."""
    from smoothheads.studies.stages import size

    return {"size": size(row.model, row.network.data)}


def _facts(row: Row, store: StudyStore, certified: Mapping[str, Any]) -> dict[str, Any]:
    trained = [store.facts(item) or {} for item in _trainings(row.network)]
    facts: dict[str, Any] = {
        name: float(np.mean([each[name] for each in trained]))
        for name in ("loss", "easy", "epoch_seconds", "peak_mib")
        if all(name in each for each in trained)
    }
    facts |= {"trained": [each["weights"] for each in trained], "ledger": row.certification.key}
    facts["processors"] = sorted({each["processor"] for each in (*trained, certified) if "processor" in each})
    return facts | {"rule": row.aggregation, "certify_peak_mib": certified.get("peak_mib")}


def _trainings(network: Network) -> Sequence[Any]:
    return network.members if isinstance(network, Joining) else (network,)


def _text(measured: Measured) -> str:
    """Six decimals, which is all that was read, so that the folder gives the same numbers as the store."""
    columns = [getattr(measured, name).tolist() for name in _COLUMNS]
    rows = [
        [f"{v:.6f}" if isinstance(v, float) else str(v) for v in row] for row in zip(*columns, strict=True)
    ]
    return "\n".join("\t".join(row) for row in [_COLUMNS, *rows]) + "\n"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _measured(path: Path) -> Measured:
    try:
        data = path.read_bytes()
        if path.name != f"{_digest(data)}.tsv.gz":
            raise ValueError("a file that was changed")
        head, *lines = gzip.decompress(data).decode().splitlines()
        columns = dict(
            zip(head.split("\t"), zip(*(line.split("\t") for line in lines), strict=True), strict=True)
        )
        kinds: dict[str, Any] = {name: np.float64 if name in _REAL else np.int64 for name in _COLUMNS}
        return Measured(**{name: np.array(columns[name], dtype=kind) for name, kind in kinds.items()})
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise LedgerError(f"the rows of a study in {path}", str(error), "keep the folder whole") from None
