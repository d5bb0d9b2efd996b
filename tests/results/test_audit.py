from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.example import example_run

from smoothheads.errors import LedgerError
from smoothheads.results.audit import Finding, audit, check_cap, check_columns, check_images, check_rounding
from smoothheads.results.compare import compare
from smoothheads.results.infer import SampleSettings
from smoothheads.results.read import read_log
from smoothheads.results.results import Results

Run = Callable[..., Path]


def test_an_honest_ledger_is_sound(run: Run) -> None:
    result = audit(run())
    assert result.sound
    assert [finding.code for finding in result.findings] == ["inferred"]
    assert result.stated == (1000, 0.001)
    assert result.best_fit is not None
    assert result.best_fit.settings == (1000, 0.001)


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
    assert audit(example_run() / "ledger-table").fits == ()


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_text("")
    with pytest.raises(LedgerError, match="empty"):
        audit(tmp_path / "log.tsv")


@pytest.mark.parametrize("noise", ["uniform", "laplace"])
def test_l1_ledgers_have_a_ladder_of_their_own(run: Run, noise: str) -> None:
    result = audit(run(noise=noise, norm="l1"))
    assert result.sound
    assert result.best_fit is not None
    assert result.best_fit.settings == (1000, 0.001)


def test_l2_radii_do_not_pass_for_l1(run: Run, tmp_path: Path) -> None:
    """More than uniform noise of this width can show at all."""
    folder = run()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["certify"]["noise"] = "uniform"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = {finding.code for finding in audit(folder).findings if finding.severity == "error"}
    assert {"cap", "radius"} <= found


def _log(
    index: Sequence[int],
    radius: Sequence[str] = (),
    *,
    prediction: Sequence[int] = (),
    correct: Sequence[str] = (),
    time: Sequence[str] = (),
) -> Results:
    count = len(index)
    texts = tuple(radius) or ("0.5",) * count
    predicted = np.array(prediction or [0] * count)
    written = tuple(correct) or tuple(str(int(p == 0)) for p in predicted)
    return Results(
        name="log",
        index=np.array(index),
        label=np.zeros(count, dtype=np.int64),
        prediction=predicted,
        radius=np.array([float(text) for text in texts]),
        seconds=np.ones(count),
        columns={"radius": texts, "correct": written, "time": tuple(time) or ("0:00:01",) * count},
    )


def _codes(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in findings]


def test_a_clean_log_has_no_findings() -> None:
    log = _log(range(0, 10_000, 20), ["0.523456"] * 500)
    assert not [*check_images(log, None), *check_columns(log), *check_rounding(log)]


def test_an_early_end_is_noticed_without_being_told() -> None:
    (finding,) = check_images(_log(range(0, 42_700, 100)), None)
    assert (finding.severity, finding.code) == ("warning", "incomplete")
    assert finding.message.startswith("427 of 500 images, if the log is of every 100th of 50,000: it ends at")


@pytest.mark.parametrize("indices", [range(0, 180, 20), range(9_000), range(0, 2_480, 20)])
def test_truncated_logs_are_warned_of(indices: range) -> None:
    """9 of 500, 9,000 of 10,000 and 124 of 500."""
    (finding,) = check_images(_log(indices), None)
    assert (finding.severity, finding.code) == ("warning", "incomplete")


def test_a_round_number_may_have_been_chosen() -> None:
    (finding,) = check_images(_log(range(0, 2_500, 25)), None)
    assert (finding.severity, finding.code) == ("note", "incomplete")
    assert "with a chance of 1 in 100" in finding.message


@pytest.mark.parametrize(
    "indices", [range(0, 360, 5), range(360), range(0, 10_000, 10), range(3), range(19, 10_000, 20)]
)
def test_other_data_sets_are_left_alone(indices: range) -> None:
    assert not list(check_images(_log(indices), None))


def test_gaps_duplicates_and_disorder() -> None:
    indices = [i for i in range(0, 10_000, 20) if i not in (40, 400)]
    (gap,) = check_images(_log(indices), None)
    assert (gap.code, gap.rows) == ("gaps", (40, 400))
    twice, unsorted = check_images(_log([*range(0, 10_000, 20), 60]), None)
    assert (twice.code, twice.rows, unsorted.code) == ("duplicates", (60,), "unsorted")
    assert _codes(list(check_images(_log([0, 20, 40, 60, 61]), None))) == [("note", "uneven")]


def test_expected_images_by_number_and_by_index() -> None:
    log = _log([0, 20, 40])
    assert not list(check_images(log, 3))
    (short,) = check_images(log, 500)
    assert short.message == "3 of 500 images"
    missing, other = check_images(log, [0, 10, 20, 30])
    assert (missing.rows, other.rows) == ((10, 30), (40,))
    assert missing.message == "2 of 4 images; 2 are missing"


def test_the_correct_column() -> None:
    (finding,) = check_columns(_log([0, 1, 2], prediction=[0, 1, 0], correct=["1", "1", "1"]))
    assert (finding.code, finding.rows) == ("correct-column", (1,))
    (total,) = check_columns(_log([0, 1, 2], prediction=[0, 1, 0], correct=["1", "1", "2"]))
    assert "running total" in total.message
    assert not list(check_columns(_log([0, 1], prediction=[0, 1], correct=["True", "0.0"])))


def test_abstentions_and_negative_radii() -> None:
    log = _log([0, 1, 2], ["0.1", "0.2", "-1"], prediction=[-1, 0, 0])
    abstention, negative = check_columns(log)
    assert (abstention.code, abstention.rows) == ("abstention", (0,))
    assert (negative.code, negative.rows) == ("negative", (2,))


def test_times() -> None:
    assert _codes(list(check_columns(_log([0, 1], time=["1.5", "2.5"])))) == [("note", "time")]
    assert _codes(list(check_columns(_log([0, 1], time=["1.5", "0:00:01"])))) == [("warning", "time")]


def test_rounding_counts_ties_of_right_answers() -> None:
    log = _log(range(4), ["0.25", "1.75", "0.953", "0.5"], prediction=[0, 0, 0, 1])
    (finding,) = check_rounding(log)
    assert finding.rows == (0, 1)
    assert finding.message.endswith("where a table counts them: 2")


def test_a_grid_of_radii_in_full_precision_is_not_rounding() -> None:
    assert not list(check_rounding(_log(range(3), ["0.250000", "0.500000", "0.000000"])))
    assert not list(check_rounding(_log(range(2), ["0.0", "0.0"])))


def test_the_cap() -> None:
    log = _log(range(3), ["0.953", "0.978", "0.955"])
    assert not list(check_cap(replace(log).take(np.array([0])), 0.25, SampleSettings(10**5, 0.001)))
    (finding,) = check_cap(log, 0.25, SampleSettings(10**5, 0.001))
    assert finding.rows == (1, 2)
    assert "up to 0.978 (3.912 sigma), are above 0.9529 (3.811 sigma)" in finding.message
    assert not list(check_cap(log, 0.25, SampleSettings(10**5, 0.01)))


def test_what_is_not_stated_is_said_to_be_unchecked(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log.tsv"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.123\t1\t1\n")
    result = audit(log)
    (finding,) = (f for f in result.findings if f.code == "unchecked")
    assert finding.severity == "warning"
    assert finding.message.startswith("sigma, n, alpha not stated, so no radius was checked")
    (finding,) = (f for f in audit(log, sigma=0.5).findings if f.code == "unchecked")
    assert finding.message.endswith("state them with --n --alpha")
    assert not [f for f in audit(log, sigma=0.5, n=1000, alpha=0.001).findings if f.code == "unchecked"]
    assert any("chosen on the votes" in each for each in result.unseen)
    ledger = audit(run())
    assert "unchecked" not in {f.code for f in ledger.findings}
    assert not any("chosen on the votes" in each for each in ledger.unseen)
    assert any("which network" in each for each in ledger.unseen)


def test_an_audit_and_a_comparison_show_themselves(run: Run) -> None:
    result = audit(run(), alpha=0.0001)
    assert repr(result).startswith("Audit of run: 12 images, NOT SOUND\n  error: ")
    text = repr(compare(read_log(run("a")), read_log(run("b", seed=1))))
    assert text.startswith("Comparison of 2 logs on 12 images\n  a: ACR ")
    assert "b against a: ACR " in text
