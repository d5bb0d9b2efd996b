"""A board of verified certifications: one static page that can be sorted, from ledgers and logs that passed
the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from os.path import relpath
from pathlib import Path

from smoothheads.errors import LedgerError
from smoothheads.files import is_partial
from smoothheads.report.html import document, header, list_html, section
from smoothheads.results.audit import Audit, audit
from smoothheads.results.ledger import TABLE
from smoothheads.results.read import read_log
from smoothheads.results.results import Results

RADII = (0.25, 0.5, 0.75, 1.0)
ENDINGS = (".tsv", ".txt", ".log")
_SORT = """
const tables = document.querySelectorAll("table");
tables.forEach(table => table.querySelectorAll("th[data-sort]").forEach((head, i) =>
  head.addEventListener("click", () => {
    const down = head.dataset.sort !== "down";
    table.querySelectorAll("th[data-sort]").forEach(each => each.dataset.sort = "");
    head.dataset.sort = down ? "down" : "up";
    const key = row => row.children[i].dataset.value;
    const order = (a, b) => isNaN(key(a)) || isNaN(key(b)) ? key(b).localeCompare(key(a)) : key(b) - key(a);
    const rows = [...table.tBodies[0].rows].sort((a, b) => down ? order(a, b) : order(b, a));
    table.tBodies[0].append(...rows);
  })));
"""


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """A log that passed the audit."""

    path: Path
    log: Results
    audit: Audit
    study: Mapping[str, str] | None = None
    """Method and network, for a row of a study."""
    rederived: bool = False
    """Whether the reader of the study has re-derived the radius of every correct image."""

    @property
    def verified(self) -> list[str]:
        """What the audit has checked of this log."""
        checks = [
            "images complete" if self.log.manifest else "images as usual in the field",
            "columns consistent",
        ]
        if self.rederived:
            checks += ["checksum of the rows", "the radius of every correct image re-derived from its votes"]
        elif self.log.rows:
            checks += ["checksums of manifest and rows", "every radius re-derived from its votes"]
        elif self.audit.stated is not None:
            checks.append("radii possible for the stated n and alpha")
        elif (best := self.audit.best_fit) is not None:
            checks.append(f"radii fit {best.settings}")
        return checks

    @property
    def claimed(self) -> list[str]:
        """What the log or its name says and nobody has checked."""
        if self.log.manifest is not None:
            return ["network and data, by their hashes"]
        if self.study is not None:
            return ["network, by the hash of its weights", "data, sigma and method, by the study", "time"]
        named = [] if self.audit.sigma is None else ["sigma, by its name and radii"]
        return [*named, "method, network and data, by its name", "time"]

    @property
    def warnings(self) -> list[str]:
        return [f.message for f in self.audit.findings if f.severity == "warning"]


def find_logs(folder: Path | str) -> list[Path]:
    """Returns the ledgers and log files below a folder."""
    folder = Path(folder)
    ledgers = [path.parent for path in folder.rglob(TABLE) if not is_partial(path)]
    files = [path for path in folder.rglob("*") if path.suffix in ENDINGS and path.is_file()]
    return sorted([*ledgers, *(path for path in files if path.name != TABLE and not is_partial(path))])


def collect(folder: Path | str) -> tuple[list[BoardEntry], dict[Path, str]]:
    """Returns the entries of a board, and why the other files below the folder are not on it."""
    entries, refused = [], {}
    for path in find_logs(folder):
        try:
            log = read_log(path)
            result = audit(log)
        except LedgerError as error:
            refused[path] = str(error)
            continue
        errors = [finding.message for finding in result.findings if finding.severity == "error"]
        if errors:
            refused[path] = errors[0]
        else:
            entries.append(BoardEntry(path, log, result))
    return entries, refused


def board_html(
    entries: Sequence[BoardEntry], refused: dict[Path, str], *, title: str, out: Path | str
) -> str:
    """Returns the page; links lead from `out` to the evidence.

    Args:
        entries: The logs that passed the audit.
        refused: The others, with the reason.
        title: The title of the page.
        out: The file that the page is written to.
    """
    out = Path(out)
    columns = ("log", "data", "method", "network", "sigma", "images", "ACR", *(f"CA {r:g}" for r in RADII))
    columns += ("classes", "worst class ACR", "samples", "seconds", "evidence")
    head = "".join(f'<th scope=col data-sort="">{escape(name)}</th>' for name in columns)
    rows = "\n".join(_row(entry, out) for entry in entries)
    table = f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    notes = (
        "<p>Click on a column to sort. ACR and certified accuracy (CA, at l2 radii unless the log says "
        "otherwise) compare only where data, images and sigma are the same. Seconds and samples are per "
        "image.</p>"
    )
    details = "".join(_details(entry) for entry in entries)
    others = [f"{relpath(path, out.parent)}: {reason}" for path, reason in refused.items()]
    return document(
        title,
        [
            header(
                title, f"{len(entries)} certifications that passed the audit, {len(refused)} that did not"
            ),
            section("Entries", notes, table),
            section("What was checked, what was only claimed, and what nobody could see", details),
            section("Not on the board", list_html(others) if others else ""),
            f"<script>{_SORT}</script>",
        ],
    )


def _row(entry: BoardEntry, out: Path) -> str:
    log = entry.log
    facts = {} if log.manifest is None else log.manifest.network
    data = log.manifest.data.name if log.manifest is not None and log.manifest.data else None
    network = f"{facts['arch']}, {facts.get('heads')} heads" if facts.get("arch") else None
    method = facts.get("method")
    if entry.study is not None:
        method, network = entry.study["method"], entry.study["network"]
    certified, present = log.certified_classes, len(log.class_acr)
    seconds = float(log.seconds.mean())
    cells: list[tuple[str, str]] = [
        (log.name, log.name),
        *((str(value or "–"), str(value or "")) for value in (data, method, network)),
        ("–", "") if entry.audit.sigma is None else (f"{entry.audit.sigma:g}",) * 2,
        (f"{len(log):,}", str(len(log))),
        (f"{log.acr:.3f}", repr(log.acr)),
        *((f"{100 * value:.1f}", repr(value)) for value in map(log.certified_accuracy, RADII)),
        (f"{certified}/{present}", str(certified)),
        (f"{log.class_acr[log.worst_class]:.3f} ({log.worst_class})", repr(log.class_acr[log.worst_class])),
        ("–", "") if log.samples is None else (f"{log.samples.mean():,.0f}", repr(float(log.samples.mean()))),
        (f"{seconds:.3g}", repr(seconds)),
    ]
    link = escape(relpath(entry.path, out.parent), quote=True)
    tags = ["th", *["td"] * (len(cells) - 1)]
    shown = "".join(
        f'<{tag} data-value="{escape(value, quote=True)}">{escape(text)}</{tag}>'
        for tag, (text, value) in zip(tags, cells, strict=True)
    )
    return f'<tr>{shown}<td data-value="{link}"><a href="{link}">files</a></td></tr>'


def _details(entry: BoardEntry) -> str:
    lines = {"verified": entry.verified, "only claimed": entry.claimed}
    lines |= {"warnings": entry.warnings} if entry.warnings else {}
    lines["not seen by the audit"] = list(entry.audit.unseen)
    inner = "".join(f"<dt>{name}</dt><dd>{escape('; '.join(texts))}</dd>" for name, texts in lines.items())
    return f"<details><summary>{escape(entry.log.name)}</summary><dl>{inner}</dl></details>"
