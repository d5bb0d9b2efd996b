from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothheads.errors import LedgerError
from smoothheads.results.cohen import read_log
from smoothheads.results.compare import compare
from smoothheads.results.intervals import paired_test
from smoothheads.results.log import Log

Run = Callable[..., Path]


@pytest.fixture
def logs(run: Run) -> tuple[Log, Log]:
    return read_log(run("a")), read_log(run("b", seed=1))


def test_differences_are_paired(logs: tuple[Log, Log]) -> None:
    first, second = logs
    comparison = compare(logs, [0, 0.5], resamples=300)
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
    assert [s.name for s in comparison.summaries] == ["a", "b"]
    assert comparison.notes == ()


def test_a_log_equals_itself(logs: tuple[Log, Log]) -> None:
    (difference,) = compare([logs[0], replace(logs[0], name="again")]).differences
    for paired in (difference.acr, *difference.certified):
        assert (paired.difference, paired.standard_error, *paired.interval) == (0, 0, 0, 0)


def test_the_result_does_not_change_from_run_to_run(logs: tuple[Log, Log]) -> None:
    assert compare(logs).differences == compare(logs).differences
    assert compare(logs, seed=1).differences != compare(logs).differences


def test_other_images_are_refused_or_aligned(logs: tuple[Log, Log]) -> None:
    part = replace(logs[1].take(np.array([9, 3, 1])), manifest={})
    with pytest.raises(LedgerError, match=r"the 12 images of a, got 3 others in b"):
        compare([logs[0], part])
    comparison = compare([logs[0], part], align=True)
    assert [log.index.tolist() for log in comparison.logs] == [[5, 15, 45]] * 2
    assert comparison.notes == ("a: 9 of 12 images are in no other log",)
    with pytest.raises(LedgerError, match="images that all logs hold"):
        compare([logs[0], replace(part, index=part.index + 1)], align=True)


def test_an_unfinished_ledger_makes_no_table_unless_asked(logs: tuple[Log, Log]) -> None:
    part = logs[0].take(np.array([0, 1, 2]))
    with pytest.raises(LedgerError, match=r"all 12 images of a, got 3; run the certification to its end"):
        compare([part])
    assert compare([part], align=True).notes == ("a: 9 of 12 images are not certified yet",)


@pytest.mark.parametrize(("name", "value"), [("alpha", 0.01), ("n", 100)])
def test_other_settings_are_refused_or_noted(logs: tuple[Log, Log], name: str, value: float) -> None:
    other = replace(logs[1], rows=(), **{name: value})  # type: ignore[arg-type]
    with pytest.raises(LedgerError, match=rf"{name} = .* as in a, got {value:g} in b"):
        compare([logs[0], other])
    assert any(f"{name} differs" in note for note in compare([logs[0], other], align=True).notes)


def test_votes_are_certified_again_at_the_smallest_alpha(run: Run) -> None:
    loose, strict = read_log(run("loose", alpha=0.01)), read_log(run("strict", seed=1))
    with pytest.raises(LedgerError, match=r"alpha = 0\.01 as in loose"):
        compare([loose, strict])
    comparison = compare([loose, strict], align=True)
    assert comparison.notes == ("loose: certified again at alpha 0.001 from its votes",)
    expected = [row.radius for row in read_log(run("exact")).rows]
    np.testing.assert_allclose(comparison.logs[0].radius, expected, atol=1.01e-6)  # the file rounds down


def test_noisy_accuracy_on_all_images_and_on_the_hardest_half(logs: tuple[Log, Log]) -> None:
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
    (bare,) = compare([logs[0], replace(logs[1], rows=())]).differences
    assert (bare.noisy_accuracy, bare.hard_accuracy) == (None, None)


def test_unknown_settings_are_noted(logs: tuple[Log, Log]) -> None:
    comparison = compare([logs[0], replace(logs[1], alpha=None)])
    assert comparison.notes == ("alpha and n are not stated by b: audit them before comparing",)


def test_other_labels_are_other_data(logs: tuple[Log, Log]) -> None:
    labels = logs[1].label.copy()
    labels[2] = 3
    for align in (False, True):
        with pytest.raises(LedgerError, match="label 2 of image 10 as in a, got 3 in b"):
            compare([logs[0], replace(logs[1], label=labels)], align=align)


def test_one_log_is_a_summary_and_none_is_an_error(logs: tuple[Log, Log]) -> None:
    alone = compare(logs[:1])
    assert alone.differences == ()
    assert alone.notes == ()
    with pytest.raises(LedgerError, match="at least one log"):
        compare([])


@pytest.mark.parametrize("align", [False, True])
def test_radii_in_different_norms_are_never_compared(run: Run, align: bool) -> None:
    l2, l1 = read_log(run("gaussian")), read_log(run("uniform", noise="uniform"))
    with pytest.raises(LedgerError, match="l2 radii as in gaussian, got l1 radii in uniform"):
        compare([l2, l1], align=align)
    assert compare([l1, read_log(run("laplace", noise="laplace"))]).differences
