"""Audits a certification log: complete, consistent, and made with the settings that are claimed for it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from smoothheads.results import checks
from smoothheads.results.checks import Expected, Finding
from smoothheads.results.ladder import Ladder, SampleSettings, infer_sigma, named_sigma, read_ladder
from smoothheads.results.read import read_log
from smoothheads.results.results import Results

_ORDER = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Audit:
    name: str
    images: int
    sigma: float | None
    stated: SampleSettings | None
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
    source: Path | str | Results,
    *,
    sigma: float | None = None,
    n: int | None = None,
    alpha: float | None = None,
    expected: Expected = None,
) -> Audit:
    """Checks a ledger, results in memory or a foreign log against what is stated, here or in its manifest.

    `expected` is the number of images or their indices; without it a foreign log is held against every k-th
    image of the field's test sets. Raises LedgerError where the file cannot be read at all.
    """
    read = source if isinstance(source, Results) else read_log(source, damaged=True)
    log = _stated(read, sigma, n, alpha)
    sigma = log.sigma if log.sigma is not None else infer_sigma(log)
    stated = None if log.n is None or log.alpha is None else SampleSettings(log.n, log.alpha)
    ladder = _ladder(log, sigma, stated)
    above = [] if sigma is None or stated is None else list(checks.cap(log, sigma, stated))
    wanted = expected
    if wanted is None and log.manifest is not None:
        wanted = log.manifest.expected
    findings = [*checks.completeness(log, wanted), *checks.columns(log), *checks.rounding(log), *above]
    if ladder is not None:  # settings that the cap excludes need not be excluded twice
        findings += checks.ladder(ladder, None if above else stated)
    if log.manifest is not None:
        findings += [*_contradicted(read, log), *checks.manifest_fields(log.manifest), *checks.votes(log)]
    named = named_sigma(log.name)
    if log.sigma is None and None not in (named, sigma) and named != sigma:
        message = f"the name of the log says sigma {named:g}, but its radii fit sigma {sigma:g}"
        findings.append(Finding("warning", "sigma", message))
    findings.sort(key=lambda finding: _ORDER.index(finding.severity))
    return Audit(log.name, len(log), sigma, stated, ladder, tuple(findings))


def _stated(log: Results, sigma: float | None, n: int | None, alpha: float | None) -> Results:
    given = {"sigma": sigma, "n": n, "alpha": alpha}
    return replace(log, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


def _contradicted(read: Results, stated: Results) -> Iterator[Finding]:
    """What the caller states and the ledger itself does not say."""
    for name in ("sigma", "n", "alpha"):
        ours, theirs = getattr(read, name), getattr(stated, name)
        if ours != theirs:
            yield Finding(
                "error", "settings", f"the ledger was certified with {name} {ours:g}, not {theirs:g}"
            )


def _ladder(log: Results, sigma: float | None, stated: SampleSettings | None) -> Ladder | None:
    """Only where n was fixed: a sequential budget has other rungs."""
    if sigma is None or log.budget != "fixed":
        return None
    return read_ladder(log, sigma, () if stated is None else (stated,))
