"""An audit for people and for programs."""

from __future__ import annotations

import textwrap
from typing import Any

from smoothheads.errors import printable
from smoothheads.results.audit import Audit, Finding
from smoothheads.results.infer import Fit

_SHOWN = 8


def to_text(audit: Audit, width: int = 100) -> str:
    """A headline, then every finding with the images it concerns; lines of at most `width` characters."""
    verdict = _verdict(audit)
    sigma = "sigma unknown" if audit.sigma is None else f"sigma {audit.sigma:g}"
    stated = "n and alpha not stated" if audit.stated is None else f"stated {audit.stated}"
    lines = [f"{audit.name}: {verdict} ({audit.images:,} images, {sigma}, {stated})"]
    for finding in audit.findings:
        text = f"{finding.message}{_images(finding)}"
        first = f"  {finding.severity:<8}{finding.code:<15} "
        lines += textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first))
    return printable("\n".join(lines))


def to_json(audit: Audit) -> dict[str, Any]:
    inferred = audit.inferred
    return {
        "name": audit.name,
        "sound": audit.sound,
        "images": audit.images,
        "sigma": audit.sigma,
        "stated": None if audit.stated is None else audit.stated._asdict(),
        "best_fit": None if inferred is None or inferred.best_fit is None else _fit(inferred.best_fit),
        "excluded": [fit.settings._asdict() for fit in inferred.fits if not fit.possible] if inferred else [],
        "findings": [
            {"severity": f.severity, "code": f.code, "message": f.message, "rows": list(f.rows)}
            for f in audit.findings
        ],
    }


def _fit(fit: Fit) -> dict[str, Any]:
    return {**fit.settings._asdict(), "matched": fit.matched, "chance": fit.chance}


def _verdict(audit: Audit) -> str:
    counts = [
        f"{count} {severity}" + ("" if count == 1 else "s")
        for severity in ("error", "warning")
        if (count := sum(finding.severity == severity for finding in audit.findings))
    ]
    return ", ".join(counts) or "nothing wrong found"


def _images(finding: Finding) -> str:
    if not finding.rows:
        return ""
    more = f" and {len(finding.rows) - _SHOWN} more" if len(finding.rows) > _SHOWN else ""
    return f" [idx {', '.join(map(str, finding.rows[:_SHOWN]))}{more}]"
