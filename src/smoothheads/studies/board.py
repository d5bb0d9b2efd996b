"""The rows of studies as entries of a board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from smoothheads.errors import SmoothheadsError
from smoothheads.report.board import BoardEntry, entry_of
from smoothheads.results.audit import UNSEEN_WITHOUT_VOTES, audit
from smoothheads.studies.results import ROWS, STUDY_FILE, load
from smoothheads.studies.spec import certify_config

CLAIMED = ("network, by the hash of its weights", "data, sigma and method, by the study", "time")
VERIFIED = ("checksum of the rows", "the radius of every correct image re-derived from its votes")
SETTINGS = ("inferred", "unchecked")
"""Findings about logs whose n and alpha are not stated; the reader of a study knows both."""


def study_entries(folder: Path | str) -> tuple[list[BoardEntry], dict[Path, str]]:
    """Returns an entry for each certified network of the studies below a folder, and why others have none."""
    entries: dict[str, BoardEntry] = {}
    refused: dict[Path, str] = {}
    for file in sorted(Path(folder).rglob(STUDY_FILE)):
        # Reading a study re-derives the radius of every correct image from its votes.
        try:
            study = load(file.parent)
        except SmoothheadsError as error:
            refused[file] = str(error)
            continue
        for row in study.certified:
            path = file.parent / ROWS / f"{row.log.name}.tsv.gz"  # which a log is named after
            if path.name in entries:  # studies share rows
                continue
            title, size = study.arms[row.arm], row.facts.size
            log = replace(row.log, name=f"{title}, seed {row.seed} ({study.name})")
            result = audit(log, sigma=row.sigma)
            if wrong := [each.message for each in result.findings if each.severity == "error"]:
                refused[path] = wrong[0]
                continue
            network = f"{size.params:,} weights, {size.gmacs:.3g} GMACs" if size else ""
            entry = replace(entry_of(path, log, result), method=title, network=network, claimed=CLAIMED)
            # The logs of others, and budgets that look at several classes, cannot be re-derived.
            if row.facts.certification and certify_config(study.certify, row.sigma).plan.choice_sizes:
                findings = tuple(each for each in result.findings if each.code not in SETTINGS)
                unseen = tuple(each for each in result.unseen if each != UNSEEN_WITHOUT_VOTES[1])
                result = replace(result, findings=findings, unseen=unseen)
                entry = replace(entry, audit=result, verified=(*entry.verified[:2], *VERIFIED))
            entries[path.name] = entry
    return list(entries.values()), refused
