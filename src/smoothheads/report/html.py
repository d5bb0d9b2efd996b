"""One self-contained page: tables, curves, images, the guarantee, and where every number comes from."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from matplotlib.figure import Figure

from smoothheads.config import Json, leaves
from smoothheads.errors import duration
from smoothheads.files import STAMP, write_stamped
from smoothheads.provenance import versions
from smoothheads.report import guarantee, plots, tables, verdict
from smoothheads.report.table import Cell, Table
from smoothheads.results.compare import Comparison, Summary
from smoothheads.results.results import Results

Gallery = Sequence[tuple[bytes, str]]
"""PNG images and their captions."""


def write_page(path: Path | str, comparison: Comparison, *, title: str, gallery: Gallery = ()) -> None:
    write_stamped(Path(path), page(comparison, title=title, gallery=gallery))


def page(comparison: Comparison, *, title: str, gallery: Gallery = ()) -> str:
    """HTML that needs nothing else: no script, no link, no font. All text that came from files is escaped."""
    parts = [
        header(title, _lead(comparison)),
        list_html(verdict.sentences(comparison), "verdict"),
        _cards(comparison.summaries[0]) if len(comparison.summaries) == 1 else "",
        section("Certified accuracy", table_html(tables.headline(comparison)), _curves(comparison)),
        section("Paired differences", *(table_html(t) for t in tables.differences(comparison))),
        section("How sure the network is under noise", _probabilities(comparison)),
        section("Images", _gallery(gallery)),
        section("What is guaranteed", _guarantee(comparison.logs[0])),
        section("Settings and cost", table_html(tables.background(comparison)), _totals(comparison.logs)),
        section("Where the numbers come from", *(_provenance(log) for log in comparison.logs)),
    ]
    return document(title, parts)


def document(title: str, parts: Iterable[str]) -> str:
    """A page in the house's look around parts that are HTML already; empty ones are left out."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="{STAMP}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_style()}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n<footer>smoothheads {escape(versions()['smoothheads'])}</footer>\n</main>\n"
        "</body>\n</html>\n"
    )


def header(title: str, lead: str) -> str:
    return f"<header><h1>{escape(title)}</h1><p>{escape(lead)}</p></header>"


def _style() -> str:
    folder = resources.files("smoothheads.report")
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in ("look.css", "page.css"))


def _lead(comparison: Comparison) -> str:
    logs = comparison.logs
    known = {
        "sigma": {f"{log.sigma:g}" for log in logs if log.sigma is not None},
        "n": {f"{log.n:,}" for log in logs if log.n is not None},
        "alpha": {f"{log.alpha:g}" for log in logs if log.alpha is not None},
    }
    data = {log.manifest.data.name for log in logs if log.manifest is not None and log.manifest.data}
    facts = [*sorted(data), f"{len(logs[0]):,} images"]
    facts += [f"{name} {' / '.join(sorted(values))}" for name, values in known.items() if values]
    return " · ".join([*facts, f"{logs[0].norm} norm"])


def _cards(summary: Summary) -> str:
    middle = len(summary.radii) // 2
    cards = [
        ("average certified radius", f"{summary.acr.value:.3f}", f"± {summary.acr.standard_error:.3f}"),
        ("right and certified", f"{100 * summary.accuracy:.1f} %", "radius above 0"),
        (
            f"certified at r = {summary.radii[middle]:g}",
            f"{100 * summary.certified[middle].value:.1f} %",
            f"± {100 * summary.certified[middle].standard_error:.1f}",
        ),
        (
            "abstained",
            f"{100 * summary.abstained.value:.1f} %",
            f"± {100 * summary.abstained.standard_error:.1f}, of {summary.images:,} images",
        ),
    ]
    return "<div class=cards>" + "".join(_card(*card) for card in cards) + "</div>"


def _card(name: str, value: str, below: str) -> str:
    small = f"<small>{escape(below)}</small>"
    return f"<div><span>{escape(name)}</span><strong>{escape(value)}</strong>{small}</div>"


def section(heading: str, *content: str) -> str:
    inner = "\n".join(part for part in content if part)
    return f"<section>\n<h2>{escape(heading)}</h2>\n{inner}\n</section>" if inner else ""


def table_html(table: Table) -> str:
    left = [" class=words" if table.has_words(i) else "" for i in range(len(table.columns))]

    def shown(i: int, cell: Cell) -> str:
        tag = "td" if i else "th"
        error = f"<small>{escape(cell.error)}</small>" if cell.error else ""
        text = f"<b>{escape(cell.text)}</b>" if cell.best else escape(cell.text)
        return f"<{tag}{left[i]}>{text}{error}</{tag}>"

    columns = zip(left, table.columns, strict=True)
    head = "".join(f"<th scope=col{words}>{escape(name)}</th>" for words, name in columns)
    rows = "".join(
        "<tr>" + "".join(shown(i, cell) for i, cell in enumerate(row)) + "</tr>\n" for row in table.rows
    )
    notes = f"<figcaption>{escape(' '.join(table.notes))}</figcaption>" if table.notes else ""
    return (
        f"<figure><h3>{escape(table.title)}</h3><div class=wide><table><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{rows}</tbody></table></div>{notes}</figure>"
    )


def _curves(comparison: Comparison) -> str:
    return plot_html(
        plots.certified_accuracy(comparison.logs),
        "ca",
        "Share of the images that are classified right and certified at least that far, with pointwise 95 % "
        "intervals.",
    )


def _probabilities(comparison: Comparison) -> str:
    if all(log.label_probability() is None for log in comparison.logs):
        return ""
    return plot_html(
        plots.label_probability(comparison.logs),
        "pa",
        "Share of the images whose true label has at least the probability p under noise. It does not depend "
        "on the number of samples, and to the left of one half it shows the images that ACR does not see.",
    )


def plot_html(figure: Figure, key: str, caption: str) -> str:
    """Inline SVG that scales with the page and uses its font; `key` keeps the ids of two plots apart."""
    svg = plots.render(figure, "svg").decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<svg ([^>]*?)width="[^"]*" ', rf'<svg role="img" aria-label="{escape(caption)}" \1', svg)
    svg = re.sub(r'(<svg [^>]*?)height="[^"]*" ', r"\1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'id="([^"]+)"', rf'id="{key}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{key}-", svg)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _gallery(gallery: Gallery) -> str:
    figures = "".join(
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>\n"
        for png, caption in gallery
    )
    return f"<div class=gallery>{figures}</div>" if figures else ""


def _guarantee(log: Results) -> str:
    return (
        f"{list_html(guarantee.guaranteed(log))}\n<h3>What is not</h3>\n"
        f"{list_html(guarantee.not_guaranteed(log))}\n<p>{escape(guarantee.scope(log))}</p>"
    )


def _totals(logs: Sequence[Results]) -> str:
    lines = []
    for log in logs:
        samples = "" if log.samples is None else f"{int(log.samples.sum()):,} samples, "
        cost = f"certified with {samples}{duration(float(log.seconds.sum()))} in all."
        lines.append(f"{log.name}: {_network(log)}{cost}")
    return list_html(lines)


def _network(log: Results) -> str:
    """What was certified, as far as the ledger says."""
    known = {} if log.manifest is None else log.manifest.network
    forms = {
        "arch": "{}",
        "heads": "{} head(s)",
        "method": "method {}",
        "seed": "training seed {}",
        "epochs": "{} epochs",
    }
    words = [form.format(known[name]) for name, form in forms.items() if name in known]
    seconds = known.get("seconds")
    words += [f"trained in {duration(seconds)}"] if isinstance(seconds, (int, float)) else []
    return f"{', '.join(words)}; " if words else ""


def _provenance(log: Results) -> str:
    if log.manifest is None:
        return f"<p>{escape(log.name)}: a log without a manifest; nothing more is known about it.</p>"
    facts = "".join(
        f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>" for key, text in _facts(log.manifest.to_json())
    )
    return f"<details><summary>{escape(log.name)}</summary><dl>{facts}</dl></details>"


def _facts(manifest: Json) -> Iterable[tuple[str, str]]:
    """Every leaf of the manifest; lists in one line."""
    for key, value in leaves(manifest):
        text = value if isinstance(value, str) else json.dumps(value)
        yield key, text if len(text) <= 400 else text[:397] + "..."


def list_html(lines: Iterable[str], kind: str = "plain") -> str:
    return f"<ul class={kind}>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
