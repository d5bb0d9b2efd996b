"""A table, and its forms: text for a terminal, Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """Returns a cell of a value as `format` shows it, perhaps in another unit."""
    return NONE if value is None else Cell(format(scale * value if scale != 1 else value, form), value)


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
    table = _printable(table)
    # Columns that do not fit beside the others follow below, again with the names in front.
    panels = [_panel(table, chosen) for chosen in _fitting(table, width)]
    return "\n".join([table.title, "", "\n\n".join(panels), *(["", *table.notes] if table.notes else [])])


def to_markdown(table: Table) -> str:
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


def _fitting(table: Table, width: int) -> Iterator[list[int]]:
    """Yields groups of columns, each with the names in front, that fit into the width."""
    widths = [_column_width(table, i) for i in range(len(table.columns))]
    group, used = [0], widths[0]
    for i in range(1, len(widths)):
        if used + len(_GAP) + widths[i] > width and len(group) > 1:
            yield group
            group, used = [0], widths[0]
        group.append(i)
        used += len(_GAP) + widths[i]
    yield group


def _column_width(table: Table, i: int) -> int:
    words = [table.columns[i], *(text for row in table.rows for text in (row[i].text, row[i].error))]
    return max(len(word) for word in words)


def _panel(table: Table, chosen: list[int]) -> str:
    widths, left = [_column_width(table, i) for i in chosen], [table.has_words(i) for i in chosen]

    def line(words: Sequence[str]) -> str:
        columns = zip(words, widths, left, strict=True)
        padded = [word.ljust(width) if first else word.rjust(width) for word, width, first in columns]
        return _GAP.join(padded).rstrip()

    lines = [line([table.columns[i] for i in chosen]), _GAP.join("-" * width for width in widths)]
    for row in table.rows:
        lines.append(line([row[i].text for i in chosen]))
        if any(row[i].error for i in chosen):
            lines.append(line([row[i].error for i in chosen]))
    return "\n".join(lines)


def _printable(table: Table) -> Table:
    rows = [
        [
            replace(cell, text=("*" if cell.best else "") + printable(cell.text), error=printable(cell.error))
            for cell in row
        ]
        for row in table.rows
    ]
    return Table(
        printable(table.title),
        tuple(map(printable, table.columns)),
        tuple(map(tuple, rows)),
        tuple(map(printable, table.notes)),
    )


def _markdown(text: str) -> str:
    """Escapes Markdown and HTML: Markdown passes HTML on, so that a file's name could be a script."""
    plain = html.escape(printable(text), quote=False).replace("\n", " ")
    return re.sub(r"([\\`*_|]|\](?=[(\[:]))", r"\\\1", plain)  # brackets alone are no link


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {char: "\\" + char for char in "&%$#_{}"}
    special |= {
        "±": r"$\pm$",
        "≥": r"$\ge$",
        "−": "$-$",
        "α": r"$\alpha$",
        "σ": r"$\sigma$",
        "×": r"$\times$",
    }
    special |= {
        "<": "$<$",
        ">": "$>$",
        "–": r"\textendash{}",
        "…": r"\ldots{}",
        "|": r"\textbar{}",
        "·": r"$\cdot$",
    }
    minus = re.compile(r"(?<![\w.])-(?=[\d.])")  # a hyphen before a number is a sign
    plain = "".join(special.get(char, char) for char in minus.sub("−", printable(text)))
    return plain.replace("--", "-{}-{}")  # two hyphens of a name are no dash
