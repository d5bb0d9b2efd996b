"""A table, and its forms: text for a terminal, Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smoothheads.errors import printable

_GAP = "  "
Value = float | int | str | tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Cell:
    """The shown text, with its error beside or below it, and the number behind it."""

    text: str
    value: Value = None
    error: str = ""
    standard_error: float | None = None
    best: bool = False
    published: float | None = None
    """The value that others published."""
    interval: tuple[float, float] | None = None
    """Its 95 % interval."""


NONE = Cell("–")
"""Stands where there is no value."""


def word(text: str) -> Cell:
    """Returns a cell of a name or another word, which is its own value."""
    return Cell(text, text)


def number(value: float | None, form: str, scale: float = 1) -> Cell:
    """Returns a cell of a value as `format` shows it, perhaps in another unit.

    Args:
        scale: What it is multiplied by in the text, such as 100 for per cent.
    """
    return NONE if value is None else Cell(format(scale * value if scale != 1 else value, form), value)


def interval(bounds: tuple[float, float] | None, form: str) -> Cell:
    """Returns a cell of both ends of an interval as `format` shows them; None gives a dash."""
    if bounds is None:
        return NONE
    low, high = bounds
    return Cell(f"[{low:{form}}, {high:{form}}]", (low, high))


@dataclass(frozen=True, slots=True)
class Table:
    """The first column holds names, the others numbers or words."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def has_words(self, column: int) -> bool:
        """Returns whether the column is text, which is set left; numbers are compared by their ends."""
        cells = [row[column] for row in self.rows]
        words = all(cell.value is None or isinstance(cell.value, str) for cell in cells)
        return column == 0 or (words and any(cell.text[:1].isalpha() for cell in cells))


def to_text(table: Table, width: int = 100) -> str:
    """Returns lines of at most `width` characters; columns that do not fit follow in further panels."""
    texts = [[("*" if cell.best else "") + printable(cell.text) for cell in row] for row in table.rows]
    errors = [[printable(cell.error) for cell in row] for row in table.rows]
    names = [printable(name) for name in table.columns]
    widths = [max(map(len, column)) for column in zip(names, *texts, *errors, strict=True)]
    # Columns that do not fit beside the others follow below, again with the names in front.
    panels, used = [[0]], widths[0]
    for i in range(1, len(names)):
        if used + len(_GAP) + widths[i] > width and len(panels[-1]) > 1:
            panels.append([0])
            used = widths[0]
        panels[-1].append(i)
        used += len(_GAP) + widths[i]

    def line(cells: Sequence[str], panel: list[int]) -> str:
        padded = [
            cells[i].ljust(widths[i]) if table.has_words(i) else cells[i].rjust(widths[i]) for i in panel
        ]
        return _GAP.join(padded).rstrip()

    def shown(panel: list[int]) -> Iterator[str]:
        yield line(names, panel)
        yield _GAP.join("-" * widths[i] for i in panel)
        for row, below in zip(texts, errors, strict=True):
            yield line(row, panel)
            if any(below[i] for i in panel):
                yield line(below, panel)

    body = "\n\n".join("\n".join(shown(panel)) for panel in panels)
    notes = ["", *map(printable, table.notes)] if table.notes else []
    return "\n".join([printable(table.title), "", body, *notes])


def to_markdown(table: Table) -> str:
    """Returns a Markdown table below its title in bold, with the notes as paragraphs."""

    def line(words: Sequence[str]) -> str:
        return "| " + " | ".join(words) + " |"

    def shown(cell: Cell) -> str:
        text, error = _markdown(cell.text), _markdown(cell.error)
        return (f"**{text}** {error}" if cell.best else f"{text} {error}").rstrip()

    head = [
        line([_markdown(name) for name in table.columns]),
        line(["---" if table.has_words(i) else "---:" for i in range(len(table.columns))]),
    ]
    body = [line([shown(cell) for cell in row]) for row in table.rows]
    notes = (_markdown(note) for note in table.notes)
    return "\n\n".join([f"**{_markdown(table.title)}**", "\n".join(head + body), *notes])


def to_latex(table: Table) -> str:
    r"""Returns a `table` float that needs only the booktabs package."""

    def shown(cell: Cell) -> str:
        text = rf"\textbf{{{_latex(cell.text)}}}" if cell.best else _latex(cell.text)
        return text + (rf" {{\scriptsize {_latex(cell.error)}}}" if cell.error else "")

    caption = " ".join([f"{table.title}.", *table.notes])
    lines = [r"\begin{table}[t]", r"  \centering", rf"  \caption{{{_latex(caption)}}}"]
    sides = "".join("l" if table.has_words(i) else "r" for i in range(len(table.columns)))
    lines += [rf"  \begin{{tabular}}{{{sides}}}", r"    \toprule"]
    lines += ["    " + " & ".join(_latex(name) for name in table.columns) + r" \\", r"    \midrule"]
    # A row that begins with a bracket or a star would be an option of the line break before it.
    lines += ["    {}" + " & ".join(shown(cell) for cell in row) + r" \\" for row in table.rows]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"])


def to_csv(table: Table) -> str:
    """Returns unrounded values; of an interval both ends.

    Standard errors and published values have columns of their own, where there are any.
    """

    def plain(cell: Cell) -> str:
        return cell.text if cell.value is None else str(_words(cell.value))

    # A column with standard errors, published values or intervals gets further columns for them.
    extra = [
        [name for name in _EXTRA if any(getattr(row[i], name) is not None for row in table.rows)]
        for i in range(len(table.columns))
    ]
    named = [
        [column, *(f"{column} {name.replace('_', ' ')}" for name in names)]
        for column, names in zip(table.columns, extra, strict=True)
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([name for names in named for name in names])
    for row in table.rows:
        cells = [
            [no_formula(plain(cell)), *(_words(getattr(cell, name)) for name in names)]
            for cell, names in zip(row, extra, strict=True)
        ]
        writer.writerow([value for values in cells for value in values])
    return out.getvalue()


_EXTRA = ("standard_error", "published", "interval")


def _words(value: Value) -> Value:
    """Returns both ends of an interval as one text."""
    return " ".join(repr(each) for each in value) if isinstance(value, tuple) else value


def no_formula(text: str) -> str:
    """Returns a name that a spreadsheet would compute marked as text; a number stays one."""
    computed = text.startswith(("=", "+", "-", "@")) and not set(text) <= set("0123456789.+-e ")
    return f"'{text}" if computed else text


FORMS: Mapping[str, Callable[[Table], str]] = {
    "text": to_text,
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
}


def to_json(table: Table) -> dict[str, Any]:
    """Returns plain values for `json.dumps`; numbers unrounded, None where nothing is known."""

    def plain(cell: Cell) -> Any:
        extra = {name: _finite(getattr(cell, name)) for name in _EXTRA if getattr(cell, name) is not None}
        return {"value": _finite(cell.value), **extra} if extra else _finite(cell.value)

    rows = [dict(zip(table.columns, map(plain, row), strict=True)) for row in table.rows]
    return {"title": table.title, "rows": rows, "notes": list(table.notes)}


def _finite(value: Value) -> Any:
    if isinstance(value, tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _markdown(text: str) -> str:
    """Escapes Markdown and HTML: Markdown passes HTML on, so that a file's name could be a script."""
    plain = html.escape(printable(text), quote=False).replace("\n", " ")
    return re.sub(r"([\\`*_|]|\](?=[(\[:]))", r"\\\1", plain)  # brackets alone are no link


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {char: "\\" + char for char in "&%$#_{}"}
_LATEX |= {"±": r"$\pm$", "≥": r"$\ge$", "−": "$-$", "α": r"$\alpha$", "σ": r"$\sigma$", "×": r"$\times$"}
_LATEX |= {
    "<": "$<$",
    ">": "$>$",
    "–": r"\textendash{}",
    "…": r"\ldots{}",
    "|": r"\textbar{}",
    "·": r"$\cdot$",
}


def _latex(text: str) -> str:
    """Returns text that LaTeX prints as it is; a hyphen before a number is a sign."""
    signed = re.sub(r"(?<![\w.])-(?=[\d.])", "−", printable(text))
    plain = "".join(_LATEX.get(char, char) for char in signed)
    return plain.replace("--", "-{}-{}")  # two hyphens of a name are no dash
