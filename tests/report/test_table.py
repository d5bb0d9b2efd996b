from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

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
            "a_b  *0.537  83.4",
            "     ±0.016",
            "c|d     0.5     –",
            "",
            "100 % of it.",
        ]
    )


def test_columns_of_words_are_set_left_and_of_numbers_right() -> None:
    words = [
        (Cell("two words", "two words"), Cell("0.5", "0.5"), Cell("–")),
        (Cell("–"), Cell("12", "12"), Cell("1", 1)),
    ]
    table = Table("t", ("name", "what", "text", "n"), tuple((Cell("x"), *row) for row in words))
    assert to_text(table).splitlines()[2:] == [
        "name  what       text  n",
        "----  ---------  ----  -",
        "x     two words   0.5  –",
        "x     –            12  1",
    ]
    assert "| --- | --- | ---: | ---: |" in to_markdown(table)
    assert r"\begin{tabular}{llrr}" in to_latex(table)


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
        "| a\\_b | **0.537** ±0.016 | 83.4 |",
        "| c\\|d | 0.5 | – |",
    ]


def test_latex_escapes_and_marks() -> None:
    text = to_latex(TABLE)
    assert r"\caption{Accuracy \& more. 100 \% of it.}" in text
    assert r"a\_b & \textbf{0.537} {\scriptsize $\pm$0.016} & 83.4 \\" in text
    assert text.count("{") == text.count("}")
    assert r"\begin{tabular}{lrr}" in text


def test_names_send_nothing_to_a_terminal_and_no_html_to_a_page() -> None:
    evil = Table("\x1b[31mred", ("n",), ((Cell("<script>\x07\x1b]0;own\x07"),),), ("<b>note</b>",))
    assert not set(to_text(evil)) & {"\x1b", "\x07"}
    assert not set(to_markdown(evil)) & {"\x1b", "<"}
    assert not set(to_latex(evil)) & {"\x1b", "\x07"}


def test_latex_signs_are_mathematics() -> None:
    text = to_latex(Table("t", ("n", "p"), ((Cell("a-b"), Cell("[-0.114, -0.043]"), Cell("<0.001")),)))
    assert "a-b & [$-$0.114, $-$0.043] & $<$0.001" in text


NAMES = (
    "a<b",
    "some--5-heads",
    "100 %",
    "a_b&c",
    "[0.1] first",
    "*star",
    "\\{}$#^~|",
    "±−-1 – … · ≥ α σ ×",
    "-0.5",
)
HARD = Table("A < b, 5 % & _more_", ("log", "ACR"), tuple((Cell(name), Cell("<0.001")) for name in NAMES))
COMMANDS = {
    "textbackslash": "\\",
    "textasciitilde": "~",
    "textasciicircum": "^",
    "textbar": "|",
    "ldots": "…",
}
COMMANDS |= {"textendash": "–"} | {char: char for char in "&%$#_{}"}
MATHEMATICS = {
    r"\pm": "±",
    r"\ge": "≥",
    "-": "−",
    r"\alpha": "α",
    r"\sigma": "σ",
    r"\times": "×",
    r"\cdot": "·",
}
MATHEMATICS |= {"<": "<", ">": ">"}


def typeset(source: str) -> str:
    """What TeX would print of a cell; fails where TeX would not get through, or print another sign."""
    found, rest = "", source.strip()
    while rest:
        if command := re.match(r"\\([a-z]+|[^a-z])(\{\})?", rest):
            assert command[1] in COMMANDS, command[0]
            assert command[2] or not command[1].isalpha() or not rest[command.end() :][:1].isalpha()
            found, rest = found + COMMANDS[command[1]], rest[command.end() :]
        elif formula := re.match(r"\$([^$]+)\$", rest):
            found, rest = found + MATHEMATICS[formula[1]], rest[formula.end() :]
        elif rest.startswith("{}"):
            rest = rest[2:]
        else:
            assert rest[0] not in "\\{}$&#^_~%<>|", rest
            assert not rest.startswith("--"), rest
            found, rest = found + rest[0], rest[1:]
    return found


def test_latex_prints_every_name_as_it_is() -> None:
    rows = re.findall(r"\\midrule\n(.*)\n    \\bottomrule", to_latex(HARD), re.DOTALL)[0].splitlines()
    assert len(rows) == len(NAMES)
    for row, name in zip(rows, NAMES, strict=True):
        assert re.search(r"\S", row)[0] not in "[*"  # type: ignore[index]  # an option of the line break above
        cells = re.split(r"(?<!\\)&", row.removesuffix(r"\\"))
        assert [typeset(cell) for cell in cells] == [re.sub(r"(?<![\w.])-(?=[\d.])", "−", name), "<0.001"]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no TeX here")
def test_latex_compiles(tmp_path: Path) -> None:
    head = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}"
    (tmp_path / "t.tex").write_text(f"{head}{to_latex(TABLE)}{to_latex(HARD)}\\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing" not in done.stdout


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


def test_ends_of_an_interval_that_are_not_known_are_valid_json() -> None:
    interval = Cell("–", (float("nan"), 1.0))
    assert to_json(Table("t", ("a",), ((interval,),)))["rows"][0]["a"] == [None, 1.0]
