from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from smoothheads.report.table import to_json, to_text
from smoothheads.report.tables import all_tables, background, class_table, differences, headline
from smoothheads.results.compare import compare
from smoothheads.results.results import Results

Make = Callable[..., Results]


def test_headline_shows_each_number_with_its_error(make_log: Make) -> None:
    log = make_log()
    table = headline(compare([log]))
    assert table.columns[:4] == ("log", "ACR", "0.00", "0.25")
    name, acr, at_zero, *_ = table.rows[0]
    value = np.mean(log.radius * log.correct)
    assert name.text == "some"
    assert acr.text == f"{value:.3f}"
    assert acr.value == pytest.approx(value)
    assert (at_zero.text, at_zero.error) == ("75.0", "±6.9")  # 30 of 40, s.e. sqrt(.75 * .25 / 39)


def test_certainties_have_no_error_and_no_bold_zero(make_log: Make) -> None:
    table = headline(compare([make_log("a"), make_log("b", 20)], radii=[0, 9]))
    assert [(row[3].text, row[3].error) for row in table.rows] == [("0.0", "")] * 2
    assert [[cell.best for cell in row] for row in table.rows] == [
        [False, True, True, False],
        [False, False, False, False],
    ]


def test_nothing_is_best_across_sigmas(make_log: Make) -> None:
    table = headline(compare([make_log("a"), replace(make_log("b", 20), sigma=1.0)]))
    assert not any(cell.best for row in table.rows for cell in row)


def test_differences_have_intervals_and_p(make_log: Make) -> None:
    (table,) = differences(compare([make_log("a"), make_log("b", 20)], radii=[0]))
    assert table.title == "b against a, paired over 40 images"
    acr, at_zero, worst, spread, noisy, hard = table.rows
    names = [row[0].text for row in (worst, spread, noisy, hard)]
    assert names == ["worst class ACR", "spread", "noisy", "hard"]
    assert hard[1].text != "–"
    assert [cell.text for cell in at_zero[:4]] == ["r = 0.00", "75.0", "50.0", "-25.0 ±6.9"]
    assert at_zero[4].text.startswith("[-")
    assert at_zero[5].value == pytest.approx(2 * 0.5**10)
    assert acr[5].text == "–"
    interval = to_json(table)["rows"][1]["95 % interval"]
    assert interval[0] < -0.25 < interval[1]


def test_background_leaves_out_what_nobody_knows(make_log: Make) -> None:
    full = background(compare([make_log()]))
    assert "hard" in full.columns
    bare = background(compare([make_log().without_votes(n=None, alpha=None)]))
    assert set(full.columns) - set(bare.columns) == {
        "n",
        "alpha",
        "ceiling",
        "at it",
        "noisy",
        "hard",
        "samples",
    }
    assert not any("noisy" in note for note in bare.notes)


def test_classes_that_are_given_up_are_counted(make_log: Make) -> None:
    log = make_log()
    kept = replace(log, prediction=np.where(log.label == log.label[0], log.label, -1))
    table = class_table(compare([kept]))
    there = len(set(log.label.tolist()))
    assert table.rows[0][table.columns.index("classes")].text == f"1/{there}"
    assert any(note.startswith("classes:") for note in table.notes)


def test_notes_of_the_comparison_are_shown(make_log: Make) -> None:
    comparison = compare([make_log("a"), make_log("b").take(np.arange(10))], align=True)
    assert "a: 30 of 40 images are in no other log" in headline(comparison).notes


@pytest.mark.parametrize("width", [80, 100])
def test_everything_fits_a_terminal(make_log: Make, width: int) -> None:
    logs = [replace(make_log(f"{i}" * 60), sigma=1.0) for i in range(3)]
    for table in all_tables(compare(logs, radii=[0.25 * i for i in range(10)], resamples=10)):
        body = to_text(replace(table, title="", notes=()), width)
        assert max(map(len, body.splitlines())) <= width


def test_bold_is_only_what_differs(make_log: Make) -> None:
    table = headline(compare([make_log("a", 30), make_log("b", 29)], radii=[0]))
    assert not any(cell.best for row in table.rows for cell in row)


def test_abstentions_and_cost_have_standard_errors(make_log: Make) -> None:
    (row,) = to_json(background(compare([make_log()])))["rows"]
    assert row["abstain"]["standard_error"] > 0
    assert row["samples"] == {"value": 1100, "standard_error": 0}
    assert row["hard"]["standard_error"] > 0
