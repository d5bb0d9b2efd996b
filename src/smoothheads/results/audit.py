"""Audits a certification log: complete, consistent, and made with the settings that are claimed for it?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from smoothheads.results import checks, recount
from smoothheads.results.checks import Expected, Finding
from smoothheads.results.cohen import read_log
from smoothheads.results.ladder import Ladder, Settings, infer_sigma, read_ladder
from smoothheads.results.log import Log
from smoothheads.results.manifest import budget, expected_indices

_ORDER = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Audit:
    name: str
    images: int
    sigma: float | None
    stated: Settings | None
    """n and alpha that the caller or the manifest states."""
    ladder: Ladder | None
    """What the largest radii reveal; None without sigma or radii."""
    findings: tuple[Finding, ...]
    """Errors first."""

    @property
    def sound(self) -> bool:
        """No number was found to be wrong."""
        return all(finding.severity != "error" for finding in self.findings)


def audit(
    path: Path,
    *,
    sigma: float | None = None,
    n: int | None = None,
    alpha: float | None = None,
    expected: Expected = None,
) -> Audit:
    """Checks a ledger or a foreign log against what is stated, here or in its manifest.

    `expected` is the number of images or their indices; without it a foreign log is held against every k-th
    image of the field's test sets. Raises LedgerError where the file cannot be read at all.
    """
    log = _stated(read_log(path), sigma, n, alpha)
    sigma = log.sigma if log.sigma is not None else infer_sigma(log)
    stated = None if log.n is None or log.alpha is None else Settings(log.n, log.alpha)
    ladder = _ladder(log, sigma, stated)
    above = [] if sigma is None or stated is None else list(checks.cap(log, sigma, stated))
    wanted = expected_indices(log.manifest) if expected is None else expected
    findings = [*checks.completeness(log, wanted), *checks.columns(log), *checks.rounding(log), *above]
    if ladder is not None:  # settings that the cap excludes need not be excluded twice
        findings += checks.ladder(ladder, None if above else stated)
    if log.rows:
        findings += [*recount.manifest_fields(log.manifest), *recount.votes(log)]
    findings.sort(key=lambda finding: _ORDER.index(finding.severity))
    return Audit(log.name, len(log), sigma, stated, ladder, tuple(findings))


def _stated(log: Log, sigma: float | None, n: int | None, alpha: float | None) -> Log:
    given = {"sigma": sigma, "n": n, "alpha": alpha}
    return replace(log, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


def _ladder(log: Log, sigma: float | None, stated: Settings | None) -> Ladder | None:
    """Only where n was fixed: a sequential budget has other rungs."""
    if sigma is None or budget(log.manifest) != "fixed":
        return None
    return read_ladder(log, sigma, () if stated is None else (stated,))
