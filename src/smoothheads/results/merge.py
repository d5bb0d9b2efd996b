"""Joins the ledgers of shards into the ledger that one process would have written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from smoothheads import hub
from smoothheads.errors import LedgerError
from smoothheads.files import claim, new_folder
from smoothheads.results.ledger import TABLE, LedgerContents, load, save
from smoothheads.results.manifest import FORMAT, FORMAT_1, Manifest, require_same


def merge(folders: Sequence[Path | str], out: Path | str) -> Path:
    """Writes the whole run to `out`, with checksums if all shards have them; they may be named by the run's
    folder that they lie in. Raises LedgerError for missing images, images that two shards hold, and shards of
    different runs."""
    if not folders:
        raise LedgerError("at least one shard", "none", "name the folders of the shards")
    out = Path(out)
    claim(out)
    shards = {folder: load(folder) for place in folders for folder in _ledgers(hub.local(place))}
    manifest = _common_manifest(shards)
    expected = manifest.indices
    if expected is None:
        raise LedgerError("shards whose manifest states its indices", "none", "certify with this version")
    lines = _collect(shards)
    _require_complete(lines, expected)
    with new_folder(out) as folder:
        sealed = all(shard.chain is not None for shard in shards.values())
        manifest = replace(manifest, format=FORMAT if sealed else FORMAT_1)
        save(folder, manifest, [lines[index] for index in expected], sealed=sealed)
    return out


def _ledgers(place: Path) -> list[Path]:
    if (place / TABLE).exists():
        return [place]
    return sorted(table.parent for table in place.glob(f"ledger-*-of-*/{TABLE}")) or [place]


def _common_manifest(shards: dict[Path, LedgerContents]) -> Manifest:
    """That of the whole run, as the first shard has it."""
    wholes = {folder: replace(shard.manifest, shard=None) for folder, shard in shards.items()}
    (first, manifest), *others = wholes.items()
    for folder, other in others:
        require_same(manifest, other, f"{first}, unlike {folder},")
    return manifest


def _collect(shards: dict[Path, LedgerContents]) -> dict[int, str]:
    lines: dict[int, str] = {}
    holder: dict[int, Path] = {}
    for folder, shard in shards.items():
        for row, line in zip(shard.rows, shard.lines, strict=True):
            if row.index in lines:
                raise LedgerError(
                    "each image in one shard",
                    f"index {row.index} in {holder[row.index]} and {folder}",
                    "leave one of them out",
                )
            lines[row.index], holder[row.index] = line, folder
    return lines


def _require_complete(lines: dict[int, str], expected: tuple[int, ...]) -> None:
    missing = [index for index in expected if index not in lines]
    other = sorted(lines.keys() - set(expected))
    if missing or other:
        found = f"{len(missing)} missing ({_some(missing)})" if missing else f"also {_some(other)}"
        raise LedgerError(f"all {len(expected)} images of the run", found, "finish every shard, then merge")


def _some(indices: list[int]) -> str:
    return ", ".join(map(str, indices[:5])) + (", ..." if len(indices) > 5 else "")
