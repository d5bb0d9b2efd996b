"""Joins the ledgers of shards into the ledger that one process would have written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from smoothheads import hub
from smoothheads.errors import LedgerError
from smoothheads.files import new_folder, reserve
from smoothheads.results.ledger import TABLE, load, save
from smoothheads.results.manifest import FORMAT, FORMAT_1, Manifest, require_same


def merge(folders: Sequence[Path | str], out: Path | str) -> Path:
    """Writes the whole run to `out`, with checksums if all shards have them; they may be named by the run's
    folder that they lie in. Raises LedgerError for missing images, images that two shards hold, and shards of
    different runs."""
    if not folders:
        raise LedgerError("at least one shard", "none", "name the folders of the shards")
    out = Path(out)
    reserve(out)
    shards = dict.fromkeys(folder for place in folders for folder in _ledgers(hub.local(place)))
    manifest, lines, sealed = _joined(shards)
    expected = manifest.indices
    if expected is None:
        raise LedgerError("shards whose manifest states its indices", "none", "certify with this version")
    _require_complete(lines, expected)
    with new_folder(out) as folder:
        manifest = replace(manifest, format=FORMAT if sealed else FORMAT_1)
        save(folder, manifest, [lines[index] for index in expected], sealed=sealed)
    return out


def _ledgers(place: Path) -> list[Path]:
    if (place / TABLE).exists():
        return [place]
    return sorted(table.parent for table in place.glob(f"ledger-*-of-*/{TABLE}")) or [place]


def _joined(folders: Iterable[Path]) -> tuple[Manifest, dict[int, str], bool]:
    """The manifest of the whole run, as the first shard has it, the lines of all images, and whether all have
    checksums. Shards are read one after the other: hundreds need no more memory than one."""
    whole: Manifest | None = None
    lines: dict[int, str] = {}
    holder: dict[int, Path] = {}
    sealed = True
    for folder in folders:
        shard = load(folder)
        manifest = replace(shard.manifest, shard=None)
        if whole is None:
            first, whole = folder, manifest
        elif replace(manifest, created=whole.created) != whole:  # quicker than to say how they differ
            remedy = f"leave out {folder}, which is of another run"
            require_same(whole, manifest, f"the settings of {first}", remedy)
        sealed &= shard.chain is not None
        for row, line in zip(shard.rows, shard.lines, strict=True):
            if row.index in lines:
                raise LedgerError(
                    "each image in one shard",
                    f"index {row.index} in {holder[row.index]} and {folder}",
                    "leave one of them out",
                )
            lines[row.index], holder[row.index] = line, folder
    assert whole is not None, "there is a shard"
    return whole, lines, sealed


def _require_complete(lines: dict[int, str], expected: tuple[int, ...]) -> None:
    missing = [index for index in expected if index not in lines]
    other = sorted(lines.keys() - set(expected))
    if missing or other:
        found = f"{len(missing)} missing ({_some(missing)})" if missing else f"also {_some(other)}"
        raise LedgerError(f"all {len(expected)} images of the run", found, "finish every shard, then merge")


def _some(indices: list[int]) -> str:
    return ", ".join(map(str, indices[:5])) + (", ..." if len(indices) > 5 else "")
