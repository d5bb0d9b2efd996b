from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothheads.errors import ConfigError, LedgerError
from smoothheads.results.audit import audit
from smoothheads.results.derive import is_recountable, recertified, recertify
from smoothheads.results.ledger import load
from smoothheads.results.manifest import Manifest
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.types import Votes

Run = Callable[..., Path]


def told(log: Results, **changes: Any) -> Manifest:
    """Its manifest, with other settings."""
    assert log.manifest is not None
    return replace(log.manifest, certify=log.manifest.certify.changed(**changes))


def test_the_same_settings_give_the_same_rows(run: Run, tmp_path: Path) -> None:
    folder = run()
    out = recertify(folder, tmp_path / "again")
    assert load(out).lines == load(folder).lines


def test_another_alpha_is_as_if_certified_with_it(run: Run, tmp_path: Path) -> None:
    out = recertify(run("strict"), tmp_path / "loose", alpha=0.01)
    direct = run("direct", alpha=0.01)
    assert load(out).lines == load(direct).lines
    log = read_log(out)
    assert log.alpha == 0.01
    assert len((told(log).source or {})["ledger"]) == 64
    assert audit(out).sound


def test_another_rule_takes_its_own_votes(run: Run, tmp_path: Path) -> None:
    folder = run()
    out = recertify(folder, tmp_path / "head", aggregation="head-2")
    before, after = read_log(folder), read_log(out)
    assert after.aggregation == "head-2"
    for old, new in zip(before.rows, after.rows, strict=True):
        assert old.selection is not None
        assert old.votes is not None
        chosen = int(np.argmax(old.selection.for_aggregation("head-2")))
        assert new.certificate.k == old.votes.for_aggregation("head-2")[chosen]
        assert new.prediction in (chosen, -1)
    assert audit(out).sound


def test_an_interrupted_recertification_goes_on(run: Run, tmp_path: Path) -> None:
    folder = run()
    out = recertify(folder, tmp_path / "a", alpha=0.01)
    whole = (out / "ledger.tsv").read_bytes()
    (out / "ledger.tsv").write_bytes(whole[: len(whole) // 2])
    recertify(folder, out, alpha=0.01)
    assert (out / "ledger.tsv").read_bytes() == whole


def test_the_correction_of_the_noise_is_taken_off(run: Run) -> None:
    log = read_log(run())
    plain = recertified(log, alpha=0.01)
    corrected = recertified(replace(log, manifest=replace(told(log), correction=1e-3)), alpha=0.01)
    certified = corrected.radius > 0
    assert np.all(corrected.radius[certified] < plain.radius[certified])


def test_what_the_votes_do_not_allow(run: Run) -> None:
    log = read_log(run())
    with pytest.raises(ConfigError, match="'head-9'"):
        recertified(log, aggregation="head-9")
    with pytest.raises(LedgerError, match="has no selection and estimation votes"):
        recertified(log.without_votes(), alpha=0.01)
    no_selection = replace(
        log,
        rows=(replace(log.rows[0], selection=Votes.zeros(log.rows[0].votes.aggregations, 4)), *log.rows[1:]),
    )
    with pytest.raises(LedgerError, match="selection and estimation votes"):
        recertified(no_selection, alpha=0.01)
    sequential = replace(log, manifest=told(log, budget="table"))
    with pytest.raises(LedgerError, match="budget table stops because of its votes"):
        recertified(sequential, alpha=0.01)
    assert is_recountable(log)
    assert not is_recountable(sequential)
    with pytest.raises(ConfigError, match="alpha"):
        recertified(log, alpha=0.7)
    few = [
        replace(row, votes=Votes(row.votes.aggregations, row.selection.counts)) for row in log.rows
    ]  # 20 of each
    with pytest.raises(ConfigError, match="n = 20 is too small for alpha = 1e-07"):
        recertified(replace(log, rows=tuple(few), manifest=told(log, n=20)), alpha=1e-7)


@pytest.mark.parametrize("noise", ["uniform", "laplace"])
def test_another_alpha_keeps_the_theorem_of_the_noise(run: Run, noise: str) -> None:
    log, wider = read_log(run(noise=noise)), read_log(run("wider", alpha=0.01, noise=noise))
    again = recertified(log, alpha=0.01)
    assert again.norm == "l1"
    np.testing.assert_allclose(again.radius, wider.radius, atol=1e-6)
    assert (again.radius >= log.radius).all()
