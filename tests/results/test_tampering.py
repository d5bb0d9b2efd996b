"""Every way to tamper with a ledger is found, by its checksums or in its votes, by every reader."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.example import BUDGETS, example_run

from smoothheads.errors import LedgerError
from smoothheads.results.audit import audit
from smoothheads.results.derive import linf, merge, recertify
from smoothheads.results.ledger import Ledger, load
from smoothheads.results.manifest import Manifest, digest
from smoothheads.results.read import read_log
from smoothheads.results.row import COLUMNS, RowError, chain_of, seal, verify_row
from smoothheads.types import Certified, Votes

Change = Callable[[list[list[str]]], list[list[str]]]


def rewrite(folder: Path, change: Change, *, sealed: bool = False) -> None:
    """Changes the rows (lists of words) of a ledger; with `sealed`, by somebody who knows the checksums."""
    path = folder / "ledger.tsv"
    head, *lines = path.read_text().splitlines()
    changed = change([line.split("\t") for line in lines])
    if sealed:
        chain = digest(json.loads((folder / "manifest.json").read_text()))
        for i, words in enumerate(changed):
            line = seal("\t".join(words[: len(COLUMNS)]), chain)
            chain, changed[i] = chain_of(line), line.split("\t")
    path.write_text("\n".join([head, *("\t".join(words) for words in changed), ""]))


def edited(column: str, word: str) -> Change:
    def change(rows: list[list[str]]) -> list[list[str]]:
        rows[3][COLUMNS.index(column)] = word
        return rows

    return change


DAMAGES: dict[str, Change] = {
    "a larger radius": edited("radius", "1.250000"),
    "another index": edited("idx", "17"),
    "missing": lambda rows: rows[:3] + rows[4:],
    "doubled": lambda rows: rows[:4] + rows[3:],
    "reordered": lambda rows: [*rows[:3], rows[4], rows[3], *rows[5:]],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_checksums_show_what_was_changed(
    run: Callable[..., Path], manifest: Manifest, damage: str, tmp_path: Path
) -> None:
    folder = run()
    rewrite(folder, DAMAGES[damage])
    words = (
        "changed after it was written" if damage in ("a larger radius", "another index") else "rows before it"
    )
    for read in (read_log, load, lambda path: merge([path, tmp_path], tmp_path / "merged")):
        with pytest.raises(LedgerError, match=words):
            read(folder)
    with pytest.raises(LedgerError, match=words), Ledger.open(folder, manifest):
        pass
    found = {finding.code: finding for finding in audit(folder).findings}
    assert words in found["checksum"].message


@pytest.mark.parametrize(
    ("column", "word", "code"),
    [
        ("radius", "1.150000", "radius"),
        ("p_lower", "0.999900000000000", "p_lower"),
        ("k", "999", "k"),
        ("n", "1001", "n"),
        ("n0", "21", "n0"),
        ("votes", "3:1000;3:999;3:1000", "votes"),
    ],
)
def test_votes_show_what_checksums_do_not(
    run: Callable[..., Path], column: str, word: str, code: str
) -> None:
    folder = run()
    rewrite(folder, edited(column, word), sealed=True)
    with pytest.raises(LedgerError, match=r"Line 5 of .* \(image 15\) is not as it was certified"):
        read_log(folder)
    errors = {finding.code: finding.rows for finding in audit(folder).findings if finding.severity == "error"}
    assert errors[code] == (15,)
    assert "checksum" not in errors


@pytest.mark.parametrize("name", BUDGETS)
def test_a_larger_radius_contradicts_the_votes_of_every_budget(name: str, tmp_path: Path) -> None:
    folder = example_run() / f"ledger-{name}"
    log = read_log(folder)
    assert audit(folder).sound
    shutil.copytree(folder, tmp_path / name)
    position = int(np.argmax(log.radius))

    def larger(rows: list[list[str]]) -> list[list[str]]:
        rows[position][COLUMNS.index("radius")] = f"{log.radius[position] + 0.3:.6f}"
        return rows

    rewrite(tmp_path / name, larger, sealed=True)
    with pytest.raises(LedgerError, match="but the votes give"):
        read_log(tmp_path / name)
    assert not audit(tmp_path / name).sound


def test_negative_votes_and_votes_that_spill_are_refused(
    run: Callable[..., Path], manifest: Manifest
) -> None:
    row = read_log(run()).rows[3]

    def voting(votes: Votes) -> Certified | RowError:
        return verify_row(replace(row, votes=votes), manifest)

    for change in ([[0, 0, 0, 0], [0, 0, 0, 0], [0, -1, 0, 0]], [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]):
        assert isinstance(
            voting(Votes(row.votes.aggregations, row.votes.counts + np.array(change))), RowError
        )
    negative = row.votes.counts.copy()
    negative[2, 0], negative[2, 1] = -1, negative[2].sum() + 1
    assert isinstance(voting(Votes(row.votes.aggregations, negative)), RowError)


def test_radii_of_a_table_are_what_was_tested(tmp_path: Path) -> None:
    log = read_log(example_run() / "ledger-table")
    assert log.manifest is not None
    tested = {*(getattr(log.manifest.certify.budget, "radii", None) or np.arange(0, 5, 0.25)), 0.0}
    assert set(log.radius.tolist()) <= tested


def test_bounds_are_recomputed_with_the_noise_s_theorem(run: Callable[..., Path]) -> None:
    for noise in ("uniform", "laplace"):
        assert audit(run(noise, noise=noise)).sound


def test_a_norm_that_the_noise_does_not_prove_is_an_error(run: Callable[..., Path]) -> None:
    found = {finding.code: finding for finding in audit(run(noise="uniform", norm="l2")).findings}
    assert found["norm"].severity == "error"
    assert "says l2 radii, but uniform noise proves l1" in found["norm"].message


def test_missing_facts_are_named(run: Callable[..., Path]) -> None:
    found = {finding.code: finding for finding in audit(run(weights=None, versions={})).findings}
    assert found["manifest"].message == "the manifest does not state weights, versions"


MANIFEST_CHANGES: dict[str, Any] = {
    "shape": [3, 32, 32],
    "certify.noise": "uniform",
    "certify.sigma": 1.0,
    "certify.alpha": 0.01,
    "engine.precision": "int8",
    "class_names": ["cat", "dog", "bird", "frog"],
    "weights": "f" * 64,
    "indices": {"first": 0, "step": 5, "count": 6},
    "data.fingerprint": "2" * 64,
    "train_sigma": 0.1,
    "grid": 1,
    "correction": 0.1,
    "norm": "linf",
    "network": {"method": "some"},
}


@pytest.mark.parametrize("key", MANIFEST_CHANGES)
def test_every_key_of_the_manifest_is_under_the_checksums(
    run: Callable[..., Path], manifest: Manifest, key: str, tmp_path: Path
) -> None:
    folder = run(shape=(1, 2, 4))
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    *outer, last = key.split(".")
    part = data
    for name in outer:
        part = part[name]
    part[last] = MANIFEST_CHANGES[key]
    path.write_text(json.dumps(data))
    words = "the manifest was changed"
    derived: dict[str, Callable[[], object]] = {
        "read": lambda: read_log(folder),
        "threats": lambda: linf(read_log(folder)),
        "merge": lambda: merge([folder, tmp_path], tmp_path / "merged"),
        "recertify": lambda: recertify(folder, tmp_path / "again", alpha=0.01),
    }
    for derive in derived.values():
        with pytest.raises(LedgerError, match=words):
            derive()
    with pytest.raises(LedgerError), Ledger.open(folder, replace(manifest, shape=(1, 2, 4))):
        pass
    found = {finding.code: finding for finding in audit(folder).findings}
    assert words in found["checksum"].message
    assert not audit(folder).sound


def test_the_date_is_not_under_the_checksums(run: Callable[..., Path]) -> None:
    path = run() / "manifest.json"
    path.write_text(path.read_text().replace("2026-01-01", "2026-02-02"))
    assert audit(path.parent).sound
