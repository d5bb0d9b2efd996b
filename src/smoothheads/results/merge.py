"""Joins the ledgers of shards into the ledger that one process would have written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from smoothheads.errors import LedgerError
from smoothheads.files import new_folder, write_atomic, write_json
from smoothheads.results.ledger import MANIFEST, TABLE, Contents, load
from smoothheads.results.manifest import Manifest, require_equal, run_indices
from smoothheads.results.row import HEADER


def merge(folders: Sequence[Path], out: Path) -> Path:
    """Writes the whole run to `out`; raises LedgerError for missing images, images that two shards hold, and
    shards of different runs."""
    if not folders:
        raise LedgerError("at least one shard", "none", "name the folders of the shards")
    if (out / TABLE).exists():
        raise LedgerError(f"no ledger at {out} yet", "one", "merge into another folder")
    shards = {folder: load(folder) for folder in folders}
    manifest = _common_manifest(shards)
    expected = run_indices(manifest)
    if expected is None:
        raise LedgerError("shards whose manifest states its indices", "none", "certify with this version")
    lines = _collect(shards)
    _require_complete(lines, expected)
    with new_folder(out) as folder:
        write_json(folder / MANIFEST, manifest)
        write_atomic(folder / TABLE, "\n".join([HEADER, *(lines[index] for index in expected), ""]))
    return out


def _common_manifest(shards: dict[Path, Contents]) -> Manifest:
    """That of the whole run, as the first shard has it."""
    wholes = {folder: _whole(shard.manifest) for folder, shard in shards.items()}
    (first, manifest), *others = wholes.items()
    for other in others:
        require_equal(manifest, other[1], f"{first}, unlike {other[0]},")
    return manifest


def _whole(manifest: Manifest) -> Manifest:
    return {key: value for key, value in manifest.items() if key != "shard"}


def _collect(shards: dict[Path, Contents]) -> dict[int, str]:
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
