"""Every way to tamper with a ledger is found in the votes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothheads.results import recount
from smoothheads.results.cohen import read_log
from smoothheads.results.log import Log
from smoothheads.results.row import Row
from smoothheads.types import ABSTAIN, Votes

Change = Callable[[Row], Row]


@pytest.fixture
def log(run: Callable[..., Path]) -> Log:
    return read_log(run())


def _with(log: Log, position: int, change: Change) -> Log:
    rows = list(log.rows)
    rows[position] = change(rows[position])
    return replace(log, rows=tuple(rows))


def _voted(row: Row, name: str, change: np.ndarray[Any, Any]) -> Row:
    votes = getattr(row, name)
    changed = Votes(votes.rules, votes.counts + change)
    return replace(row, **{name: changed})  # type: ignore[arg-type]


def test_an_honest_ledger_passes(log: Log) -> None:
    assert not [*recount.votes(log), *recount.manifest_fields(log.manifest)]


ONE_MORE = np.array([[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
OTHER_HEAD = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [0, -1, 0, 0]])


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("votes-sum", lambda row: _voted(row, "votes", OTHER_HEAD)),
        ("votes-sum", lambda row: _voted(row, "selection", ONE_MORE)),
        ("votes-sum", lambda row: replace(row, n0=row.n0 + 1)),
        ("votes-k", lambda row: replace(row, k=row.k - 1, p_lower=0.5, radius=0.0, prediction=ABSTAIN)),
        ("bound", lambda row: replace(row, p_lower=row.p_lower + 1e-9)),
        ("radius", lambda row: replace(row, radius=row.radius + 1e-5)),
        ("selection", lambda row: replace(row, prediction=(row.prediction + 1) % 4)),
    ],
)
def test_tampering_is_found(log: Log, code: str, change: Change) -> None:
    found = {finding.code: finding for finding in recount.votes(_with(log, 3, change))}
    assert found[code].severity == "error"
    assert found[code].rows == (15,)


def test_a_claimed_alpha_is_tested(run: Callable[..., Path]) -> None:
    """Rows of alpha 0.01 under a manifest that says 0.001."""
    loose = replace(read_log(run(alpha=0.01)), alpha=0.001)
    found = {finding.code: len(finding.rows) for finding in recount.votes(loose)}
    assert found["bound"] == 12
    assert found["radius"] > 0


def test_a_correction_is_asked_for(log: Log) -> None:
    """Grid noise takes something off p_lower; rows that did not are too sure."""
    strict = replace(log, manifest=log.manifest | {"correction": 1e-9})
    assert {finding.code for finding in recount.votes(strict)} >= {"bound"}


def test_a_sequential_budget_is_counted_but_not_bounded(log: Log) -> None:
    table = replace(log, manifest=log.manifest | {"budget": "table"})
    (finding,) = recount.votes(_with(table, 3, lambda row: replace(row, p_lower=0.999)))
    assert (finding.severity, finding.code) == ("note", "bound")


def test_rows_without_votes(log: Log) -> None:
    (finding,) = recount.votes(_with(log, 0, lambda row: replace(row, votes=None)))
    assert (finding.severity, finding.code) == ("warning", "votes")


def test_missing_facts_are_named(log: Log) -> None:
    bare = {key: value for key, value in log.manifest.items() if key not in ("weights", "versions")}
    (finding,) = recount.manifest_fields(bare)
    assert finding.message == "the manifest does not state weights, versions"
    fields, key = recount.manifest_fields({"certify": {"sigma": 1}})
    assert "alpha, n0, n" in fields.message
    assert "no noise key" in key.message


@pytest.mark.parametrize("noise", ["uniform", "laplace"])
def test_bounds_are_recomputed_with_the_noise_s_theorem(run: Callable[..., Path], noise: str) -> None:
    honest = read_log(run(noise=noise))
    assert list(recount.votes(honest)) == []
    l2 = replace(honest, rows=read_log(run("l2")).rows)  # the same votes with the radii of Gaussian noise
    assert {finding.code for finding in recount.votes(l2)} == {"radius"}


def test_a_norm_that_the_noise_does_not_prove_is_an_error(run: Callable[..., Path]) -> None:
    log = read_log(run(noise="uniform", norm="l2"))
    (finding,) = recount.manifest_fields(log.manifest)
    assert (finding.severity, finding.code) == ("error", "norm")
    assert "says l2 radii, but uniform noise proves l1" in finding.message
