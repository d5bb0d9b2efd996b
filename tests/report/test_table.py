from __future__ import annotations

import json

import pytest

from smoothheads.report.table import Cell, Table, to_json, to_latex, to_markdown, to_text

TABLE = Table(
    "Accuracy & more",
    ("log", "ACR", "0.25"),
    (
        (Cell("a_b", "a_b"), Cell("0.537", 0.5373, "±0.016", 0.0164, best=True), Cell("83.4", 0.834)),
        (Cell("c|d", "c|d"), Cell("0.5", 0.5), Cell("–")),
    ),
    ("100 % of it.",),
)


def test_text_is_aligned() -> None:
    assert to_text(TABLE) == "\n".join(
        [
            "Accuracy & more",
            "",
            "log     ACR  0.25",
            "---  ------  ----",
            "a_b   0.537  83.4",
            "     ±0.016",
            "c|d     0.5     –",
            "",
            "100 % of it.",
        ]
    )


@pytest.mark.parametrize("width", [80, 100])
def test_wide_tables_are_broken_into_panels(width: int) -> None:
    cells = tuple(Cell(f"{i}.000", i) for i in range(40))
    lines = to_text(Table("t", ("name", *map(str, range(40))), ((Cell("x"), *cells),)), width).splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("x") for line in lines) == sum(line.startswith("name") for line in lines) > 1
    assert " ".join(lines).count(".000") == 40


def test_a_column_wider_than_the_page_still_appears() -> None:
    table = Table("t", ("name", "v"), ((Cell("x" * 90), Cell("y" * 90)),))
    assert "y" * 90 in to_text(table, 80)


def test_markdown() -> None:
    lines = to_markdown(TABLE).splitlines()
    assert lines[2:6] == [
        "| log | ACR | 0.25 |",
        "| --- | ---: | ---: |",
        "| a_b | **0.537** ±0.016 | 83.4 |",
        "| c\\|d | 0.5 | – |",
    ]


def test_latex_escapes_and_marks() -> None:
    text = to_latex(TABLE)
    assert r"\caption{Accuracy \& more. 100 \% of it.}" in text
    assert r"a\_b & \textbf{0.537} {\scriptsize $\pm$0.016} & 83.4 \\" in text
    assert text.count("{") == text.count("}")
    assert r"\begin{tabular}{lrr}" in text


def test_latex_survives_every_special_character() -> None:
    text = to_latex(Table("t", ("n",), ((Cell("\\{}$&#^_~%"),),)))
    assert r"\textbackslash{}\{\}\$\&\#\textasciicircum{}\_\textasciitilde{}\%" in text


def test_json_keeps_the_numbers() -> None:
    table = Table("t", ("log", "x"), ((Cell("a", "a"), Cell("–", float("nan"), "", float("inf"))),))
    assert json.loads(json.dumps(to_json(TABLE)))["rows"][0] == {
        "log": "a_b",
        "ACR": {"value": 0.5373, "standard_error": 0.0164},
        "0.25": 0.834,
    }
    assert to_json(table)["rows"][0]["x"] == {"value": None, "standard_error": None}
