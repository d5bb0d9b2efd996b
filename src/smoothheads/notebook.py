"""Small pieces of HTML for notebooks: all text is escaped, nothing is fetched, light and dark both work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_COLOUR = "#3f8fc4"
_WIDTH, _HEIGHT = 360, 180


def table(facts: Mapping[str, str], title: str) -> str:
    """Returns a table of names and values, one row each."""
    return _table({name: escape(value) for name, value in facts.items()}, title)


def bars(rows: Mapping[str, Sequence[int]], title: str, most: int = 10) -> str:
    """Returns a table with the classes of most votes as bars.

    Args:
        rows: Votes per class, by the name of the classifier.
        title: The caption.
        most: How many classes are drawn in each row.
    """
    return _table({name: _bar_chart(counts, most) for name, counts in rows.items()}, title)


def _table(cells: Mapping[str, str], title: str) -> str:
    """Returns a table of cells that are HTML already."""
    rows = "".join(
        f'<tr><th style="text-align:left;vertical-align:top;font-weight:500">{escape(name)}</th>'
        f'<td style="text-align:left">{cell}</td></tr>'
        for name, cell in cells.items()
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"


def _bar_chart(counts: Sequence[int], most: int) -> str:
    total = max(1, sum(counts))
    top = sorted(sorted(range(len(counts)), key=lambda label: -counts[label])[:most])
    lines = [
        f'<text x="28" y="{14 * i + 11}" text-anchor="end">{label}</text>'
        f'<rect x="34" y="{14 * i + 2}" height="10" width="{200 * counts[label] / total:.1f}" '
        f'fill="{_COLOUR}"/>'
        f'<text x="240" y="{14 * i + 11}">{counts[label]:,}</text>'
        for i, label in enumerate(label for label in top if counts[label])
    ]
    height = 14 * len(lines) + 2
    text = ", ".join(f"class {label}: {counts[label]}" for label in top if counts[label])
    return (
        f'<svg width="300" height="{height}" role="img" aria-label="{text}" font-size="11" '
        'fill="currentColor">'
        f"{''.join(lines)}</svg>"
    )


def curve(xs: Sequence[float], ys: Sequence[float], x: str, y: str) -> str:
    """Returns a falling curve from 1 to 0 as SVG.

    Args:
        xs: Positions from 0.
        ys: Fractions.
        x: The name of the horizontal axis.
        y: The name of the vertical axis.
    """
    right = max(xs) or 1.0
    points = " ".join(
        f"{40 + (_WIDTH - 50) * a / right:.1f},{10 + (_HEIGHT - 40) * (1 - b):.1f}"
        for a, b in zip(xs, ys, strict=True)
    )
    ticks = "".join(
        f'<text x="34" y="{14 + (_HEIGHT - 40) * (1 - fraction):.0f}" text-anchor="end">{fraction:.0%}</text>'
        for fraction in (0.0, 0.5, 1.0)
    )
    below = (
        f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 14}" text-anchor="end">{escape(x)} up to {right:.3g}</text>'
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{escape(y)} over {escape(x)}" '
        f'font-size="11" fill="currentColor">{ticks}{below}<polyline points="{points}" fill="none" '
        f'stroke="{_COLOUR}" stroke-width="2"/></svg>'
    )
