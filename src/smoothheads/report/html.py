"""The report: one self-contained page, and the plots as files beside it.

The page begins with what a certificate is, then says the verdict in words; tables, curves, the guarantee and
the origin of every number follow.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from smoothheads.config import leaves
from smoothheads.files import STAMP, has_stamp, reserve, write_stamped
from smoothheads.provenance import versions
from smoothheads.report import plots, tables, words
from smoothheads.report.table import Table
from smoothheads.results.compare import Comparison, compare
from smoothheads.results.results import Results
from smoothheads.types import Grid, Pixels, format_radius

PAGE = "report.html"
TITLE = "Certified robustness"
Gallery = Sequence[tuple[bytes, str]]
"""PNG images and their captions."""
_SIDE, _GAP = 96, 6  # pixels of a panel of the gallery
_WIDTH = (4.4, 3.2)  # inches of a plot whose text is readable at 400 pixels
# Colours of a plot as the page's variables, so that it follows dark mode.
_VARIABLES = {
    plots.INK: "var(--ink)",
    plots.GREY: "var(--soft)",
    plots.AXIS: "var(--rule)",
    plots.GRID: "var(--line)",
    "#ffffff": "none",
    **{colour.lower(): f"var(--c{i})" for i, colour in enumerate(plots.COLOURS)},
}


def report(
    *sources: Results | Path | str,
    out: Path | str,
    radii: Sequence[float] | None = None,
    align: bool = False,
    title: str = TITLE,
) -> Path:
    """Writes the report of results, ledgers or anybody's logs into a folder, and returns the page.

    Args:
        sources: The logs; the first is the baseline of the differences.
        radii: The radii r of certified accuracy; by default steps of a quarter.
        align: Whether logs that differ are compared on what they share.
    """
    reserve_report(Path(out))
    return write(compare(*sources, radii=radii, align=align), Path(out), title)[0]


def reserve_report(folder: Path | str) -> None:
    """Raises StorageError unless a report may be written there; call it before a long run."""
    reserve(Path(folder), lambda existing: has_stamp(existing / PAGE))


def write(
    comparison: Comparison, folder: Path | str, title: str = TITLE, gallery: Gallery = ()
) -> list[Path]:
    """Writes the page and the plots, and returns their paths, the page first.

    The gallery are pictures that show what a certificate is.
    """
    folder = Path(folder)
    write_stamped(folder / PAGE, page(comparison, title=title, gallery=gallery))
    figures = {"certified-accuracy.png": plots.certified_accuracy(comparison.logs)}
    if any(log.label_probability() is not None for log in comparison.logs):
        figures["label-probability.png"] = plots.label_probability(comparison.logs)
    for name, figure in figures.items():
        plots.save(figure, folder / name)
    return [folder / PAGE, *(folder / name for name in figures)]


def page(comparison: Comparison, *, title: str, gallery: Gallery = ()) -> str:
    """Returns HTML that needs nothing else: no script, no link, no font. All text from files is escaped."""
    logs = comparison.logs
    # The lead: data, images and settings, as far as they are known.
    known = {
        "sigma": {f"{log.sigma:g}" for log in logs if log.sigma is not None},
        "n": {f"{log.n:,}" for log in logs if log.n is not None},
        "alpha": {f"{log.alpha:g}" for log in logs if log.alpha is not None},
    }
    data = {log.manifest.data.name for log in logs if log.manifest is not None and log.manifest.data}
    facts = [*sorted(data), f"{len(logs[0]):,} images"]
    facts += [f"{name} {' / '.join(sorted(values))}" for name, values in known.items() if values]
    lead = " · ".join([*facts, f"{logs[0].norm} norm"])
    guarantee = (
        f"{list_html(words.guaranteed(logs[0]))}\n<h3>What is not</h3>\n"
        f"{list_html(words.not_guaranteed(logs[0]))}\n<p>{escape(words.scope(logs[0]))}</p>"
    )
    accuracy = plot_html(
        plots.certified_accuracy(logs),
        "ca",
        "Fraction of the images that are classified correctly and certified at least that far, with "
        "pointwise 95 % intervals.",
    )
    probabilities = ""
    if any(log.label_probability() is not None for log in logs):
        probabilities = plot_html(
            plots.label_probability(logs),
            "pa",
            "Fraction of the images whose true label has at least the probability p under noise. It does not "
            "depend on the number of samples, and to the left of one half it shows the images that ACR does "
            "not see.",
        )
    pictures = "".join(
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>\n"
        for png, caption in gallery
    )
    pictures = f"<div class=gallery>{pictures}</div>" if pictures else ""
    # Empty parts are left out.
    parts = [
        header(title, lead),
        section("What a certificate is", _explanation(logs[-1]), pictures),
        section("What these numbers say", list_html(words.verdict(comparison), "verdict")),
        section("Certified accuracy", table_html(tables.headline(comparison)), accuracy),
        section("Paired differences", *(table_html(t) for t in tables.differences(comparison))),
        section("Classes", table_html(tables.class_table(comparison))),
        section("How sure the network is under noise", probabilities),
        section("What is guaranteed", guarantee),
        section("Settings and cost", table_html(tables.background(comparison))),
        section("Where the numbers come from", *(_provenance(log) for log in logs)),
    ]
    return document(title, parts)


def document(title: str, parts: Iterable[str]) -> str:
    """Returns a page around parts that are HTML already; empty ones are left out."""
    body = "\n".join(part for part in parts if part)
    folder = resources.files("smoothheads.report")
    style = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in ("look.css", "page.css"))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="{STAMP}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n<footer>smoothheads {escape(versions()['smoothheads'])}</footer>\n</main>\n"
        "</body>\n</html>\n"
    )


def header(title: str, lead: str) -> str:
    return f"<header><h1>{escape(title)}</h1><p>{escape(lead)}</p></header>"


def section(heading: str, *content: str) -> str:
    """Returns a section, nothing if all of its content is empty."""
    inner = "\n".join(part for part in content if part)
    return f"<section>\n<h2>{escape(heading)}</h2>\n{inner}\n</section>" if inner else ""


def table_html(table: Table, links: Sequence[str] = ()) -> str:
    """Returns a table as HTML.

    Args:
        links: Where the names in the first column lead; cells then carry their values for sorting.
    """
    left = [" class=words" if table.has_words(i) else "" for i in range(len(table.columns))]
    sorted_by = ' data-sort=""' if links else ""
    columns = zip(left, table.columns, strict=True)
    head = "".join(f"<th scope=col{words}{sorted_by}>{escape(name)}</th>" for words, name in columns)
    body = ""
    for j, row in enumerate(table.rows):
        body += "<tr>"
        for i, cell in enumerate(row):
            tag = "td" if i else "th"
            text = f"<b>{escape(cell.text)}</b>" if cell.best else escape(cell.text)
            text += f"<small>{escape(cell.error)}</small>" if cell.error else ""
            text = f'<a href="{escape(links[j])}">{text}</a>' if links and not i else text
            value = f' data-value="{escape(str(cell.value))}"' if links else ""
            body += f"<{tag}{left[i]}{value}>{text}</{tag}>"
        body += "</tr>\n"
    sentences = " ".join(note if note.endswith((".", ")")) else f"{note}." for note in table.notes)
    notes = f"<figcaption>{escape(sentences)}</figcaption>" if table.notes else ""
    return (
        f"<figure><h3>{escape(table.title)}</h3><div class=wide><table><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{body}</tbody></table></div>{notes}</figure>"
    )


def list_html(lines: Iterable[str], kind: str = "plain") -> str:
    return f"<ul class={kind}>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def plot_html(figure: Figure, key: str, caption: str) -> str:
    """Returns a plot as inline SVG that scales with the page, uses its font and follows dark mode.

    Args:
        key: Keeps the ids of two plots on one page apart.
        caption: The text below the plot and for screen readers.
    """
    figure.set_size_inches(_WIDTH)
    svg = plots.render(figure, "svg").decode()
    svg = svg[svg.index("<svg") :]
    # No fixed size, so that it scales; a label for screen readers; ids of its own; the page's font.
    svg = re.sub(r'<svg ([^>]*?)width="[^"]*" ', rf'<svg role="img" aria-label="{escape(caption)}" \1', svg)
    svg = re.sub(r'(<svg [^>]*?)height="[^"]*" ', r"\1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'id="([^"]+)"', rf'id="{key}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{key}-", svg)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)
    # Text without a colour is black; every other colour is one of ours.
    svg = svg.replace("<text ", '<text fill="currentColor" ')
    svg = re.sub(r"(fill|stroke): (#[0-9a-f]{6})", lambda m: f"{m[1]}: {_VARIABLES.get(m[2], m[2])}", svg)
    return f"<figure class=plot>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def triptych(image: Pixels, grid: Grid, *, sigma: float, radius: float, seed: int) -> bytes:
    """Returns a PNG of three panels: the image, one noisy sample, a random change of exactly that norm.

    Args:
        radius: The l2 norm of the change.
    """
    generator = np.random.default_rng(seed)
    clean = image / grid.max_value
    noisy = clean + sigma * generator.standard_normal(image.shape)
    change = generator.standard_normal(image.shape)
    changed = clean + radius * change / np.linalg.norm(change)
    strip = Image.new("RGB", (3 * _SIDE + 2 * _GAP, _SIDE), "white")
    for i, pixels in enumerate((clean, noisy, changed)):
        # Clipped for the eye only; one channel is shown as grey.
        shown = (np.clip(pixels, 0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0)
        panel = Image.fromarray(np.repeat(shown, 3 // shown.shape[2], axis=2))
        panel = panel.resize((_SIDE, _SIDE), Image.Resampling.NEAREST)
        strip.paste(panel, (i * (_SIDE + _GAP), 0))
    out = BytesIO()
    strip.save(out, format="png")
    return out.getvalue()


def _explanation(log: Results) -> str:
    """Draws one certificate of the log: votes on noisy copies, and the ball in which nothing changes."""
    sure = np.flatnonzero(log.correct & (log.radius > 0))
    if not len(sure):
        return ""
    # The image with the median radius stands for the others.
    row = log[int(sure[np.argsort(log.radius[sure], kind="stable")[len(sure) // 2]])]
    radius = format_radius(row.radius, 3)
    # At the left the votes for the most frequent classes, if the log has them.
    bars = ""
    if row.record is not None and row.votes.n:
        counts = row.votes.for_aggregation(log.aggregation)
        top = np.argsort(-counts, kind="stable")[: min(4, len(counts))].tolist()
        bars = "".join(
            f'<text x="66" y="{48 + 26 * i}" text-anchor="end">class {c}</text>'
            f'<rect x="72" y="{36 + 26 * i}" width="{max(1.0, 100 * counts[c] / row.votes.n):.1f}" '
            f'height="16" fill="var(--c{0 if c == row.prediction else 1})"/>'
            f'<text x="176" y="{48 + 26 * i}">{counts[c]:,}</text>'
            for i, c in enumerate(top)
        )
        bars = f'<text x="4" y="18">votes on {row.votes.n:,} noisy copies</text>{bars}'
    # At the right the ball around the image.
    left = 130 if bars else -50
    ball = (
        f'<g transform="translate({left + 195} 82)"><circle r="52" fill="var(--c0)" fill-opacity=".14" '
        'stroke="var(--c0)"/><circle r="3" fill="var(--ink)"/><path d="M0 0 L45 -26" stroke="var(--ink)"/>'
        f'<text x="0" y="-62" text-anchor="middle">inside: always class {row.prediction}</text>'
        f'<text x="0" y="24" text-anchor="middle">R = {radius}</text></g>'
    )
    caption = (
        f"Image {row.index} of {log.name}. The network classifies many noisy copies of the image. If one "
        f"class wins clearly enough, no image that differs by less than R in the {log.norm} norm can get "
        f"another class: here R = {radius}, with pixel values from 0 to 1."
    )
    return (
        f'<figure class=plot><svg role="img" aria-label="{escape(caption)}" viewBox="0 0 {left + 290} 150" '
        f'font-size="12" fill="currentColor">{bars}{ball}</svg><figcaption>{escape(caption)}</figcaption>'
        "</figure>"
    )


def _provenance(log: Results) -> str:
    """Lists every value of the manifest."""
    if log.manifest is None:
        return f"<p>{escape(log.name)}: a log without a manifest; nothing more is known about it.</p>"
    facts = ""
    for key, value in leaves(log.manifest.to_json()):
        text = value if isinstance(value, str) else json.dumps(value)
        text = text if len(text) <= 400 else text[:397] + "..."
        facts += f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>"
    return f"<details><summary>{escape(log.name)}</summary><dl>{facts}</dl></details>"
