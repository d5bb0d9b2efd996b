"""A line says what the row says, never more."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothheads.errors import SoundnessError
from smoothheads.results.row import COLUMNS, HEADER, format_time, from_line, parse_time, to_line
from smoothheads.types import ABSTAIN, Certificate, Certified, Votes

AGGREGATIONS = ("ensemble", "head-1")


def _row(**changes: object) -> Certified:
    votes = Votes(AGGREGATIONS, np.array([[0, 7, 93], [100, 0, 0]]))
    selection = Votes(AGGREGATIONS, np.array([[0, 0, 10], [4, 0, 6]]))
    certificate = Certificate(2, 0.5724999888, 0.75, 93, 100, 10)
    claims = {
        name: changes.pop(name) for name in list(changes) if name in ("prediction", "radius", "p_lower")
    }
    base = Certified(20, 2, replace(certificate, **claims), selection, votes, 12.8444)  # type: ignore[arg-type]
    return replace(base, **changes)  # type: ignore[arg-type]


def test_the_line_is_exactly_this() -> None:
    assert HEADER.startswith("idx\tlabel\tpredict\tradius\tcorrect\ttime\tn0\t")
    words = dict(zip(COLUMNS, to_line(_row()).split("\t"), strict=True))
    assert words == {
        "idx": "20",
        "label": "2",
        "predict": "2",
        "radius": "0.572499",
        "correct": "1",
        "time": "0:00:12.844",
        "n0": "10",
        "n": "100",
        "k": "93",
        "p_lower": "0.750000000000000",
        "selection": "2:10;0:4,2:6",
        "votes": "1:7,2:93;0:100",
    }


@pytest.mark.parametrize(
    ("radius", "text"),
    [
        (0.9528641408, "0.952864"),
        (0.9347816671, "0.934781"),
        (0.5724999888, "0.572499"),
        (0.2069128908, "0.206912"),
        (0.0, "0.000000"),
        (1e-9, "0.000000"),
    ],
)
def test_radius_vectors_are_rounded_down(radius: float, text: str) -> None:
    assert to_line(_row(radius=radius)).split("\t")[3] == text


@given(radius=st.floats(0, 100), p_lower=st.floats(0, 1), seconds=st.floats(0, 1e6))
def test_text_never_claims_more_than_the_row(radius: float, p_lower: float, seconds: float) -> None:
    words = to_line(_row(radius=radius, p_lower=p_lower, seconds=seconds)).split("\t")
    assert Decimal(radius) - Decimal("1e-6") < Decimal(words[3])
    assert Decimal(p_lower) - Decimal("1e-12") < Decimal(words[9])
    assert float(words[3]) <= radius
    assert float(words[9]) <= p_lower
    assert "E" not in words[9]
    assert abs(parse_time(words[5]) - seconds) <= 0.00051


@given(
    counts=st.lists(st.lists(st.integers(0, 10**9), min_size=3, max_size=3), min_size=2, max_size=2),
    prediction=st.integers(0, 2),
)
def test_a_line_reads_back_as_the_row(counts: list[list[int]], prediction: int) -> None:
    row = _row(votes=Votes(AGGREGATIONS, np.array(counts)), prediction=prediction)
    back = from_line(to_line(row), AGGREGATIONS, 3)
    assert back.votes.counts.tolist() == counts
    assert back.selection.counts.tolist() == [[0, 0, 10], [4, 0, 6]]
    assert (back.index, back.label, back.prediction, back.correct) == (20, 2, prediction, prediction == 2)
    assert back.certificate == replace(row.certificate, radius=0.572499)


@pytest.mark.parametrize("radius", [float("nan"), float("inf"), -0.1])
def test_what_is_not_a_radius_is_refused(radius: float) -> None:
    with pytest.raises(SoundnessError, match="a radius is finite"):
        _row(radius=radius)


def test_an_abstention_has_no_radius() -> None:
    with pytest.raises(SoundnessError, match="0 for an abstention"):
        _row(prediction=ABSTAIN)
    assert _row(prediction=ABSTAIN, radius=0.0).abstained


def _spoilt(column: str, word: str) -> str:
    words = to_line(_row()).split("\t")
    words[COLUMNS.index(column)] = word
    return "\t".join(words)


@pytest.mark.parametrize(
    ("column", "word"),
    [
        ("correct", "0"),
        ("radius", "nan"),
        ("radius", "-1"),
        ("time", "yesterday"),
        ("idx", "2.5"),
        ("votes", "-"),
        ("votes", "1:7,2:93"),  # one aggregation instead of two
        ("votes", "1:7,9:93;0:100"),  # no such class
        ("votes", "1:7,1:93;0:100"),  # a class twice
        ("votes", "1:0,2:93;0:100"),
        ("p_lower", "1.5"),
        ("votes", "1:7;0:100\textra"),
    ],
)
def test_other_lines_are_refused(column: str, word: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_line(_spoilt(column, word), AGGREGATIONS, 3)


@given(st.text())
def test_arbitrary_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_line(text, AGGREGATIONS, 3)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("16.6", 16.6), ("0:00:12.844", 12.844), ("0:02:31.238689", 151.238689), ("1 day, 1:00:00", 90000.0)],
)
def test_times_of_every_dialect(text: str, seconds: float) -> None:
    assert parse_time(text) == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize("text", ["", "1:2", " , 0:0:1", "nan", "inf", "-3", "1,5", "a:b:c"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        parse_time(text)


def test_time_is_written_like_a_timedelta() -> None:
    assert [format_time(s) for s in (0, 59.9996, 3725.5)] == ["0:00:00.000", "0:01:00.000", "1:02:05.500"]
