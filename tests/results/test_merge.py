from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from smoothheads.errors import LedgerError, StorageError
from smoothheads.results.derive import merge
from smoothheads.results.ledger import Ledger
from smoothheads.results.manifest import Manifest, Shard
from smoothheads.types import Certified

Rows = Callable[..., Certified]
Shards = Callable[..., list[Path]]


@pytest.fixture
def shards(tmp_path: Path, manifest: Manifest, row: Rows) -> Shards:
    def make(count: int = 3, skip: Sequence[int] = (), **changes: Any) -> list[Path]:
        folders = []
        for number in range(count):
            shard = Shard(number=number, of=count)
            told = replace(manifest, shard=shard, **(changes if number else {}))
            folder = tmp_path / f"shard-{number}"
            with Ledger.open(folder, replace(told, created=f"then {number}")) as ledger:
                for index in told.expected or ():
                    if index in skip:
                        break
                    ledger.append(row(index))
            folders.append(folder)
        return folders

    return make


@pytest.mark.parametrize("count", [3, 5, 20])
def test_shards_make_the_bytes_of_one_run(
    shards: Shards, run: Callable[..., Path], tmp_path: Path, manifest: Manifest, count: int
) -> None:
    folders = shards(count)
    out = merge(folders[::-1], tmp_path / "merged")
    assert (out / "ledger.tsv").read_bytes() == (run() / "ledger.tsv").read_bytes()
    with Ledger.open(out, manifest) as ledger:
        assert len(ledger.done) == 12


def test_gaps_are_refused(shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"2 of the run's 12 images are missing \(40, 55\)"):
        merge(shards(skip=[40]), tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_missing_shard_is_a_gap(shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"4 of the run's 12 images are missing \(5, 20, 35, 50\)"):
        merge(shards()[::2], tmp_path / "merged")


def test_duplicates_are_refused(shards: Shards, tmp_path: Path) -> None:
    folders = shards()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("ledger.tsv", "manifest.json"):
        (copy / name).write_bytes((folders[1] / name).read_bytes())
    with pytest.raises(LedgerError, match=r"Image 5 is in both .*shard-1 and .*copy"):
        merge([*folders, copy], tmp_path / "merged")


def test_shards_of_different_runs_are_refused(shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="weights"):
        merge(shards(weights="f" * 64), tmp_path / "merged")


def test_an_existing_ledger_is_kept(shards: Shards, run: Callable[..., Path]) -> None:
    with pytest.raises(StorageError, match="a new or empty folder"):
        merge(shards(), run())


def test_nothing_to_merge(tmp_path: Path, run: Callable[..., Path]) -> None:
    with pytest.raises(LedgerError, match="nothing to merge"):
        merge([], tmp_path / "merged")


def test_shards_of_different_noise_are_refused(shards: Shards, tmp_path: Path) -> None:
    folders = shards(norm="l1")
    with pytest.raises(LedgerError, match=r'of .*shard-0: norm = "l1" instead of nothing\. Leave'):
        merge(folders, tmp_path / "whole")
