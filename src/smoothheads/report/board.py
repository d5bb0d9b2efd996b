"""A board of verified certifications: one static page that can be sorted, from ledgers and logs that passed
the audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from os.path import relpath
from pathlib import Path

from smoothheads.errors import LedgerError
from smoothheads.files import is_partial
from smoothheads.report.html import document, header, list_html, section, table_html
from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.report.tables import class_cells
from smoothheads.results.audit import Audit, audit
from smoothheads.results.compare import summarize_classes
from smoothheads.results.ledger import TABLE
from smoothheads.results.read import read_log
from smoothheads.results.results import Results

RADII = (0.25, 0.5, 0.75, 1.0)
ENDINGS = (".tsv", ".txt", ".log")


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """A log that passed the audit."""

    path: Path
    log: Results
    audit: Audit
    method: str | None
    network: str | None
    verified: tuple[str, ...]
    """The checks that this log has passed."""
    claimed: tuple[str, ...]
    """The statements of the log or its name that nobody has checked."""


def entry_of(path: Path, log: Results, result: Audit) -> BoardEntry:
    """Returns the entry of a ledger, which its votes verify, or of somebody's log, which its numbers do."""
    if log.manifest is not None:
        network = log.manifest.network
        arch = f"{network['arch']}, {network.get('heads')} heads" if network.get("arch") else None
        checks = ("checksums of manifest and rows", "every radius re-derived from its votes")
        complete = ("images complete", "columns consistent", *checks)
        claimed = ("network and data, by their hashes",)
        return BoardEntry(path, log, result, network.get("method"), arch, complete, claimed)
    verified: tuple[str, ...] = ("images as usual in the field", "columns consistent")
    if result.stated is not None:
        verified += ("radii possible for the stated n and alpha",)
    elif (best := result.best_fit) is not None:
        verified += (f"radii fit {best.settings}",)
    sigma = () if result.sigma is None else ("sigma, by its name and radii",)
    by_name = (*sigma, "method, network and data, by its name", "time")
    return BoardEntry(path, log, result, None, None, verified, by_name)


def find_logs(folder: Path | str) -> list[Path]:
    """Returns the ledgers and log files below a folder."""
    folder = Path(folder)
    ledgers = [path.parent for path in folder.rglob(TABLE) if not is_partial(path)]
    logs = [path for path in folder.rglob("*") if path.suffix in ENDINGS and path.is_file()]
    return sorted([*ledgers, *(path for path in logs if path.name != TABLE and not is_partial(path))])


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
            entries.append(entry_of(path, log, result))
    return entries, refused


def board_html(
    entries: Sequence[BoardEntry], refused: dict[Path, str], *, title: str, out: Path | str
) -> str:
    """Returns the page of entries and refused logs; links lead from `out` to the evidence."""
    folder = Path(out).parent
    columns = ("log", "data", "method", "network", "sigma", "images", "ACR", *(f"CA {r:g}" for r in RADII))
    columns += ("classes", "worst class", "worst ACR", "spread", "samples", "seconds")
    table = Table(
        title="Certifications that passed the audit",
        columns=columns,
        rows=tuple(_row(entry) for entry in entries),
        notes=(
            "Click on a column to sort; a name leads to the files. ACR and certified accuracy (CA, at l2 "
            "radii unless the log says otherwise) compare only where data, images and sigma are the same. "
            "Classes: those with a certificate, of those present. Spread: largest minus smallest class ACR. "
            "Intervals are 95 % bootstraps over images. Seconds and samples are per image.",
        ),
    )
    # Below the table: what was checked of every entry, and what was not.
    details = ""
    for entry in entries:
        warnings = [each.message for each in entry.audit.findings if each.severity == "warning"]
        lines = {"verified": entry.verified, "only claimed": entry.claimed, "warnings": warnings}
        lines["not seen by the audit"] = entry.audit.unseen
        facts = "".join(f"<dt>{name}</dt><dd>{escape('; '.join(x))}</dd>" for name, x in lines.items() if x)
        details += f"<details><summary>{escape(entry.log.name)}</summary><dl>{facts}</dl></details>"
    others = [f"{relpath(path, folder)}: {reason}" for path, reason in refused.items()]
    lead = f"{len(entries)} certifications that passed the audit, {len(refused)} that did not"
    return document(
        title,
        [
            header(title, lead),
            section("Entries", table_html(table, links=[relpath(entry.path, folder) for entry in entries])),
            section("What was checked, what was only claimed, and what nobody could see", details),
            section("Not on the board", list_html(others) if others else ""),
            f"<script>{files('smoothheads.report').joinpath('sort.js').read_text('utf-8')}</script>",
        ],
    )


def _row(entry: BoardEntry) -> tuple[Cell, ...]:
    log, manifest = entry.log, entry.log.manifest
    data = manifest.data.name if manifest is not None and manifest.data else None
    classes = summarize_classes(log, ())
    numbers = (classes.certified, classes.worst_acr, classes.spread)
    return (
        word(log.name),
        *(word(str(value)) if value else NONE for value in (data, entry.method, entry.network)),
        number(entry.audit.sigma, "g"),
        number(len(log), ",d"),
        number(log.acr, ".3f"),
        *(number(log.certified_accuracy(radius), ".1f", 100) for radius in RADII),
        *class_cells(word(log.class_name(classes.worst)), classes.present, numbers),
        number(None if log.samples is None else float(log.samples.mean()), ",.0f"),
        number(float(log.seconds.mean()), ".3g"),
    )
