from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothheads.certify.bounds import max_radius
from smoothheads.errors import LedgerError
from smoothheads.noise import NOISES
from smoothheads.results.compare import Paired, compare, summarize
from smoothheads.results.metrics import Interval, paired_test
from smoothheads.results.read import read_log
from smoothheads.results.results import Results

Run = Callable[..., Path]
RETRAINING = "Every log is of one trained network: nothing here says how much training again would change."


@pytest.fixture
def logs(run: Run) -> tuple[Results, Results]:
    return read_log(run("a")), read_log(run("b", seed=1))


def test_differences_are_paired(logs: tuple[Results, Results]) -> None:
    first, second = logs
    comparison = compare(logs, radii=[0, 0.5], resamples=300)
    (difference,) = comparison.differences
    gain = second.radius * second.correct - first.radius * first.correct
    assert (difference.name, difference.baseline) == ("b", "a")
    assert difference.acr.difference == pytest.approx(gain.mean())
    assert difference.acr.standard_error == pytest.approx(gain.std(ddof=1) / np.sqrt(12))
    assert difference.acr.interval.low <= difference.acr.difference <= difference.acr.interval.high
    assert difference.acr.p_value is None
    at_half = [log.correct & (log.radius >= 0.5) for log in logs]
    assert difference.certified[1].difference == pytest.approx(np.mean(at_half[1]) - np.mean(at_half[0]))
    assert difference.certified[1].baseline == np.mean(at_half[0])
    assert difference.certified[1].this == np.mean(at_half[1])
    assert difference.certified[1].p_value == paired_test(*at_half)
    assert [s.log.name for s in comparison.summaries] == ["a", "b"]
    assert comparison.notes == (RETRAINING,)


def test_a_log_equals_itself(logs: tuple[Results, Results]) -> None:
    (difference,) = compare([logs[0], replace(logs[0], name="again")]).differences
    for paired in (difference.acr, *difference.certified):
        assert (paired.difference, paired.standard_error, *paired.interval) == (0, 0, 0, 0)


def test_the_result_does_not_change_from_run_to_run(logs: tuple[Results, Results]) -> None:
    assert compare(logs).differences == compare(logs).differences
    assert compare(logs, seed=1).differences != compare(logs).differences


def test_other_images_are_refused_or_aligned(logs: tuple[Results, Results]) -> None:
    part = replace(logs[1].take(np.array([9, 3, 1])), manifest=None)
    with pytest.raises(
        LedgerError, match=r"b has other images than a \(9 missing .*add --align \(in Python align=True\)"
    ):
        compare([logs[0], part])
    comparison = compare([logs[0], part], align=True)
    assert [log.index.tolist() for log in comparison.logs] == [[5, 15, 45]] * 2
    assert comparison.notes == ("a: 9 of 12 images are in no other log", RETRAINING)
    with pytest.raises(LedgerError, match="no image in common"):
        compare([logs[0], replace(part, index=part.index + 1)], align=True)


def test_an_unfinished_ledger_makes_no_table_unless_asked(logs: tuple[Results, Results]) -> None:
    part = logs[0].take(np.array([0, 1, 2]))
    with pytest.raises(LedgerError, match="a has 3 of 12 images; let the certification end, or add --align"):
        compare([part])
    assert compare([part], align=True).notes == ("a: 9 of 12 images are not certified yet",)


@pytest.mark.parametrize(("name", "value"), [("alpha", 0.01), ("n", 100)])
def test_other_settings_are_refused_or_noted(logs: tuple[Results, Results], name: str, value: float) -> None:
    other = logs[1].without_votes(**{name: value})
    with pytest.raises(LedgerError, match=f"b has {name} {value:g} and a .* add --align"):
        compare([logs[0], other])
    assert any(f"{name} differs" in note for note in compare([logs[0], other], align=True).notes)


def test_votes_are_certified_again_at_the_smallest_alpha(run: Run) -> None:
    loose, strict = read_log(run("loose", alpha=0.01)), read_log(run("strict", seed=1))
    with pytest.raises(LedgerError, match=r"strict has alpha 0\.001 and loose 0\.01"):
        compare([loose, strict])
    comparison = compare([loose, strict], align=True)
    assert comparison.notes == ("loose: certified again at alpha 0.001 from its votes", RETRAINING)
    expected = [row.radius for row in read_log(run("exact")).rows]
    np.testing.assert_allclose(comparison.logs[0].radius, expected, atol=1.01e-6)  # the file rounds down


def test_noisy_accuracy_on_all_images_and_on_the_hardest_half(logs: tuple[Results, Results]) -> None:
    (difference,) = compare(logs).differences
    before, after = (log.label_probability() for log in logs)
    assert before is not None
    assert after is not None
    assert difference.noisy_accuracy is not None
    assert difference.hard_accuracy is not None
    assert difference.noisy_accuracy.difference == pytest.approx(np.mean(after - before))
    hard = np.argsort(before + after, kind="stable")[:6]
    assert difference.hard_accuracy.baseline == pytest.approx(before[hard].mean())
    assert difference.hard_accuracy.this == pytest.approx(after[hard].mean())
    (bare,) = compare([logs[0], logs[1].without_votes()]).differences
    assert (bare.noisy_accuracy, bare.hard_accuracy) == (None, None)


def test_unknown_settings_are_noted(logs: tuple[Results, Results]) -> None:
    comparison = compare([logs[0], replace(logs[1], alpha=None)])
    assert comparison.notes == ("alpha and n are not stated by b: audit them before comparing", RETRAINING)


def test_budgets_are_not_mixed(logs: tuple[Results, Results]) -> None:
    manifest = logs[1].manifest
    assert manifest is not None
    table = replace(manifest, certify=manifest.certify.changed(budget="table"))
    anytime = replace(manifest, certify=manifest.certify.changed(budget="anytime"))
    for other in (table, anytime):
        mixed = [logs[0], replace(logs[1], manifest=other)]
        with pytest.raises(LedgerError, match=f"b has budget {other.certify.budget} and a fixed"):
            compare(mixed)
        assert any("budget differs" in note for note in compare(mixed, align=True).notes)
    assert any("radii are steps" in note for note in compare([replace(logs[1], manifest=table)]).notes)


def test_the_exact_test_decides_on_accuracies() -> None:
    paired = Paired(0.2, 0.3, 0.1, 0.05, Interval(0.02, 0.2), 0.063)
    assert not paired.differs
    assert replace(paired, p_value=None).differs
    assert replace(paired, p_value=0.04).differs


def test_paths_and_results_are_taken(run: Run) -> None:
    comparison = compare([read_log(run("a")), run("b", seed=1), str(run("c", seed=2))])
    assert [log.name for log in comparison.logs] == ["a", "b", "c"]


def test_other_labels_are_other_data(logs: tuple[Results, Results]) -> None:
    labels = logs[1].label.copy()
    labels[2] = 3
    for align in (False, True):
        with pytest.raises(LedgerError, match="Image 10 has label 2 in a and 3 in b"):
            compare([logs[0], replace(logs[1], label=labels)], align=align)


def test_one_log_is_a_summary_and_none_is_an_error(logs: tuple[Results, Results]) -> None:
    alone = compare(logs[:1])
    assert alone.differences == ()
    assert alone.notes == ()
    with pytest.raises(LedgerError, match="nothing to compare"):
        compare([])


@pytest.mark.parametrize("align", [False, True])
def test_radii_in_different_norms_are_never_compared(run: Run, align: bool) -> None:
    l2, l1 = read_log(run("gaussian")), read_log(run("uniform", noise="uniform"))
    with pytest.raises(LedgerError, match="gaussian has l2 radii and uniform l1 radii"):
        compare([l2, l1], align=align)
    assert compare([l1, read_log(run("laplace", noise="laplace"))]).differences


def test_a_ledger_tells_everything(run: Callable[..., Path]) -> None:
    log = read_log(run())
    summary = summarize(log)
    shares = log.label_probability()
    assert shares is not None
    assert summary.acr.value == pytest.approx(np.mean(log.radius * log.correct))
    assert summary.radii == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert [e.value for e in summary.certified] == [
        np.mean(log.correct & (log.radius >= r)) for r in summary.radii
    ]
    assert summary.accuracy == summary.certified[0].value
    assert summary.noisy_accuracy is not None
    assert summary.noisy_accuracy.value == pytest.approx(shares.mean())
    assert summary.hard_accuracy is not None
    assert summary.hard_accuracy.value == pytest.approx(np.sort(shares)[:6].mean())
    assert summary.ceiling == max_radius(1000, 0.001, 0.5)
    assert summary.at_ceiling == pytest.approx(1 / 12)  # only index 0 has every vote
    assert summary.samples == (1020, 0)
    assert summary.seconds.value == pytest.approx(np.mean(0.25 + np.arange(0, 60, 5)))


def test_a_foreign_log_says_what_it_does_not_know(run: Callable[..., Path]) -> None:
    bare = read_log(run()).without_votes(n=None, alpha=None)
    summary = summarize(bare, [0, 0.5])
    unknown = (summary.noisy_accuracy, summary.hard_accuracy, summary.ceiling)
    assert (*unknown, summary.at_ceiling, summary.samples) == (None,) * 5
    assert summary.radii == (0, 0.5)


@pytest.mark.parametrize("noise", ["uniform", "laplace"])
def test_the_ceiling_is_that_of_the_noise(run: Callable[..., Path], noise: str) -> None:
    """Under uniform noise the radii near the ceiling lie close together; six decimals tell them apart."""
    log = read_log(run(noise=noise))
    summary = summarize(log)
    assert summary.ceiling == max_radius(1000, 0.001, 0.5, NOISES.get(noise)().radius)
    assert summary.at_ceiling == pytest.approx(1 / 12)
    converted = replace(log, norm="linf")
    assert summarize(converted).ceiling is None
