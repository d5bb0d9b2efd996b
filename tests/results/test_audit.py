from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from smoothheads.errors import LedgerError
from smoothheads.results.audit import audit

V1 = Path(__file__).parents[1] / "fixtures" / "v1" / "run"
Run = Callable[..., Path]


def test_an_honest_ledger_is_sound(run: Run) -> None:
    result = audit(run())
    assert result.sound
    assert [finding.code for finding in result.findings] == ["ladder"]
    assert result.stated == (1000, 0.001)
    assert result.inferred is not None
    assert result.inferred.best_fit is not None
    assert result.inferred.best_fit.settings == (1000, 0.001)


def test_an_unfinished_ledger_is_held_against_its_manifest(run: Run) -> None:
    folder = run()
    lines = (folder / "ledger.tsv").read_text().splitlines(keepends=True)
    (folder / "ledger.tsv").write_text("".join(lines[:-2]))
    result = audit(folder)
    assert not result.sound
    assert result.findings[0].code == "incomplete"
    assert result.findings[0].rows == (50, 55)
    assert audit(folder, expected=range(0, 50, 5)).sound


def test_claims_of_the_caller_are_tested(run: Run) -> None:
    result = audit(run(), alpha=0.0001)
    assert {f.code for f in result.findings if f.severity == "error"} == {"cap", "settings"}


def test_errors_come_first(run: Run) -> None:
    severities = [finding.severity for finding in audit(run(), alpha=0.0001).findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)


def test_another_settings_ladder_below_the_cap(tmp_path: Path) -> None:
    """3.56 lies between the rungs 3.567 and 3.545 of alpha 0.001, and no cap is passed."""
    path = tmp_path / "sigma_1.00"
    path.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t3.56\t1\t1\n20\t1\t1\t3.3\t1\t1\n")
    result = audit(path, n=100_000, alpha=0.001)
    assert [f.message for f in result.findings if f.code == "settings"] == [
        "1 of the largest radii (3.56) cannot come from the stated n = 100,000 with alpha = 0.001"
    ]
    assert "cap" not in {finding.code for finding in result.findings}
    unstated = audit(path)
    assert unstated.sound
    assert any("exclude n = 100,000 with alpha = 0.001" in f.message for f in unstated.findings)
    assert audit(path, n=100_000, alpha=0.01).sound


def test_sequential_budgets_have_no_ladder() -> None:
    assert audit(V1 / "ledger-table").inferred is None


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_text("")
    with pytest.raises(LedgerError, match="empty"):
        audit(tmp_path / "log.tsv")


@pytest.mark.parametrize("noise", ["uniform", "laplace"])
def test_l1_ledgers_have_a_ladder_of_their_own(run: Run, noise: str) -> None:
    result = audit(run(noise=noise, norm="l1"))
    assert result.sound
    assert result.inferred is not None
    assert result.inferred.best_fit is not None
    assert result.inferred.best_fit.settings == (1000, 0.001)


def test_l2_radii_do_not_pass_for_l1(run: Run, tmp_path: Path) -> None:
    """More than uniform noise of this width can show at all."""
    folder = run()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["certify"]["noise"] = "uniform"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = {finding.code for finding in audit(folder).findings if finding.severity == "error"}
    assert {"cap", "radius"} <= found
