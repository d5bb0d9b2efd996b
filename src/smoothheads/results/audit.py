"""Audits a certification log: complete, consistent, and made with the settings that are claimed for it?

Each check yields its findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from smoothheads.certify.bounds import max_radius
from smoothheads.results.infer import (
    Fit,
    SampleSettings,
    best_fit,
    digits_of,
    infer_settings,
    infer_sigma,
    named_sigma,
)
from smoothheads.results.manifest import Manifest
from smoothheads.results.metrics import Bools, image_differences
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.results.row import RowError, verify_row

Severity = Literal["error", "warning", "note"]
Expected = int | Sequence[int] | None
_SEVERITIES = ("error", "warning", "note")
_STEP = 0.25  # between the radii of the field's tables
_USUAL_STEPS = (20, 100)
_TEST_SETS = (10_000, 50_000)  # CIFAR-10 and ImageNet, of which the field certifies every k-th image
_NEEDED = ("engine", "weights", "data", "indices", "versions")
_TRUTH = {True: ("1", "1.0", "True", "true"), False: ("0", "0.0", "False", "false")}
_USUAL = (SampleSettings(10**5, 0.001), SampleSettings(10**5, 0.01))


UNSEEN = (
    "whether the labels are those of the data set",
    "which network was certified, and whether its votes depend on one image alone",
    "whether the votes come from fresh noise of the stated law, added before the network",
)
"""Statements that no audit of a log can check."""
SEEN_BY_RERUN = UNSEEN[1:]
"""The ones of them that `audit --rerun` checks nevertheless."""
UNSEEN_WITHOUT_VOTES = (
    "whether the class was chosen on the votes that are bounded",
    "whether the radii follow from votes at all, as none were kept",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """error: a number of the log is wrong; warning: it may mislead; note: good to know."""

    severity: Severity
    code: str
    message: str
    rows: tuple[int, ...] = ()
    """Indices of the images concerned, where there are some in particular."""


@dataclass(frozen=True, slots=True, repr=False)
class Audit:
    name: str
    images: int
    sigma: float | None
    stated: SampleSettings | None
    """n and alpha that the caller or the manifest states."""
    fits: tuple[Fit, ...]
    """Says how well each n and alpha explains the largest radii; empty without sigma or radii."""
    findings: tuple[Finding, ...]
    """Errors first."""
    unseen: tuple[str, ...] = ()
    """Statements about this log that no audit can check."""

    @property
    def sound(self) -> bool:
        """No number was found to be wrong."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def best_fit(self) -> Fit | None:
        """The n and alpha that the largest radii reveal; None if they do not tell."""
        return best_fit(self.fits)

    def __repr__(self) -> str:
        head = f"Audit of {self.name}: {self.images:,} images, {'sound' if self.sound else 'NOT SOUND'}"
        return "\n".join([head, *(f"  {f.severity}: {f.code}: {f.message}" for f in self.findings)])


def audit(
    source: Path | str | Results,
    *,
    sigma: float | None = None,
    n: int | None = None,
    alpha: float | None = None,
    expected: Expected = None,
) -> Audit:
    """Checks a log against what is stated, here or in its manifest.

    Raises LedgerError where the file cannot be read at all.

    Args:
        source: A ledger, results in memory or a foreign log.
        sigma: The standard deviation of the noise, if the log does not say.
        n: The number of estimation samples, if the log does not say.
        alpha: The failure probability per image, if the log does not say.
        expected: The number of images or their indices; without it a foreign log is held against every k-th
            image of the field's test sets.
    """
    # What the caller states replaces what the log says; whatever differs is found below.
    original = source if isinstance(source, Results) else read_log(source, damaged=True)
    given = {"sigma": sigma, "n": n, "alpha": alpha}
    log = replace(original, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    manifest = log.manifest
    if expected is None and manifest is not None:
        expected = manifest.expected
    findings = [*check_images(log, expected), *check_columns(log), *check_rounding(log)]

    # Radii against n, alpha and sigma.
    sigma = log.sigma if log.sigma is not None else infer_sigma(log)
    stated = None if log.n is None or log.alpha is None else SampleSettings(log.n, log.alpha)
    above = [] if sigma is None or stated is None else list(check_cap(log, sigma, stated))
    findings += above
    fits: tuple[Fit, ...] = ()
    if sigma is not None and log.budget == "fixed":  # a sequential budget has another grid of radii
        fits = infer_settings(log, sigma, () if stated is None else (stated,))
        # Settings that the cap excludes need not be excluded twice.
        findings += check_settings(fits, sigma, None if above else stated)
    named = named_sigma(log.name)
    if log.sigma is None and None not in (named, sigma) and named != sigma:
        message = f"the name of the log says sigma {named:g}, but its radii fit sigma {sigma:g}"
        findings.append(Finding("warning", "sigma", message))

    # Rows against their votes, and the manifest against what the caller states.
    if manifest is not None:
        for name in given:
            before, after = getattr(original, name), getattr(log, name)
            if before != after:
                message = f"the ledger was certified with {name} {before:g}, not {after:g}"
                findings.append(Finding("error", "settings", message))
        findings += [*check_manifest(manifest), *check_votes(log, manifest)]
    findings += check_stated(original, log, sigma)
    findings.sort(key=lambda finding: _SEVERITIES.index(finding.severity))
    unseen = UNSEEN if log.rows else (*UNSEEN, *UNSEEN_WITHOUT_VOTES)
    return Audit(log.name, len(log), sigma, stated, fits, tuple(findings), unseen)


def check_stated(original: Results, log: Results, sigma: float | None) -> Iterator[Finding]:
    """Warns of what could not be checked because nobody states the settings."""
    # A ledger states everything; a foreign log may leave a setting open that nobody else states.
    missing = [name for name in ("sigma", "n", "alpha") if getattr(log, name) is None]
    if not missing or original.manifest is not None:
        return
    if sigma is None:
        tested = "so no radius was checked"
    elif "sigma" in missing:
        tested = f"so radii were only compared with usual settings at sigma {sigma:g}, which they suggest"
    else:
        tested = "so radii were only compared with usual settings"
    flags = " ".join(f"--{name}" for name in missing)
    yield Finding(
        "warning", "unchecked", f"{', '.join(missing)} not stated, {tested}; state them with {flags}"
    )


def check_images(log: Results, expected: Expected) -> Iterator[Finding]:
    """Finds images that are missing, doubled, foreign or in disorder."""
    # Every image once, in order, and those that are expected: by their number or one by one.
    indices = log.index.tolist()
    listed = indices if expected is None or isinstance(expected, int) else expected
    doubled, missing, other = image_differences(indices, listed)
    count = len(set(indices))
    if doubled:
        yield Finding("error", "duplicates", f"{len(doubled)} images appear more than once", tuple(doubled))
    if np.any(np.diff(log.index) < 0):
        yield Finding("warning", "unsorted", "images are not in rising order")
    if expected is None:
        yield from check_progression(sorted(set(indices)))
    elif isinstance(expected, int) and count != expected:
        yield Finding("error", "incomplete", f"{count} of {expected} images")
    if missing:
        message = f"{count - len(other)} of {len(listed)} images; {len(missing)} are missing"
        yield Finding("error", "incomplete", message, tuple(missing))
    if other:
        message = f"{len(other)} images do not belong to the run"
        yield Finding("error", "unexpected", message, tuple(other))


def check_progression(indices: list[int]) -> Iterator[Finding]:
    """Finds gaps and an early end where nobody states the images.

    Most likely they are every k-th image of one of the field's test sets.
    """
    if len(indices) < 3:
        return
    # The most common distance between neighbours is the step; images that it skips are missing.
    step = Counter(np.diff(indices).tolist()).most_common(1)[0][0]
    missing = sorted(set(range(indices[0], indices[-1] + 1, step)) - set(indices))
    if any((index - indices[0]) % step for index in indices):
        yield Finding("note", "uneven", f"images do not follow one step; most are {step} apart")
        return
    if missing:
        message = f"{len(missing)} images are missing inside (every {step}th)"
        yield Finding("error", "gaps", message, tuple(missing))

    # Rows go on to the end of a test set. Fewer were chosen, or the log was cut: a choice is round, while a
    # cut at random ends at a multiple of a hundred with a chance of 1 in 100.
    size = next((size for size in _TEST_SETS if indices[-1] < size), None)
    full = len(range(indices[0], size, step)) if size else 0
    count = len(range(indices[0], indices[-1] + 1, step))
    if size is None or count >= full or (step not in _USUAL_STEPS and 4 * count < full):
        return  # complete, or more likely of another data set
    message = (
        f"{len(indices)} of {full} images, if the log is of every {step}th of {size:,}: it ends at index "
        f"{indices[-1]}, which goes on to {indices[0] + step * (full - 1)}"
    )
    if count % 100 == 0 and 2 * count < full:
        chance = "so round a number was chosen, or comes by a cut with a chance of 1 in 100"
        yield Finding("note", "incomplete", f"{message}; {chance}")
    else:
        yield Finding("warning", "incomplete", message)


def check_columns(log: Results) -> Iterator[Finding]:
    """Finds columns that contradict each other."""
    # Some scripts write a running total where each image should have 0 or 1.
    written = log.columns.get("correct", ())
    pairs = zip(log.index.tolist(), log.correct.tolist(), written, strict=False)
    wrong = tuple(index for index, correct, text in pairs if text not in _TRUTH[correct])
    totals = [str(total) for total in np.cumsum(log.correct)]
    if wrong and list(written) == totals:
        yield Finding("error", "correct-column", "column `correct` is a running total, not 0 or 1 per image")
    elif wrong:
        message = f"column `correct` contradicts label and predict in {len(wrong)} rows"
        yield Finding("error", "correct-column", message, wrong)
    # An abstention claims nothing, and no ball has a negative radius.
    yield from _rows(log, log.abstained & (log.radius != 0), "abstention", "abstentions have a radius")
    yield from _rows(log, log.radius < 0, "negative", "radii are below 0")
    # The field writes H:MM:SS; a mixture makes sums of times wrong.
    clock = [":" in text for text in log.columns.get("time", ())]
    if any(clock) and not all(clock):
        yield Finding("warning", "time", "column `time` mixes seconds and H:MM:SS")
    elif clock and not any(clock):
        yield Finding("note", "time", "column `time` is in seconds, not H:MM:SS")


def check_rounding(log: Results) -> Iterator[Finding]:
    """Finds radii of three digits: rounded to the nearest, about half of them claim too much."""
    shown = log.radius[log.radius > 0]
    if not len(shown) or digits_of(log).significant > 3:
        return
    # A radius rounded up onto 0.25, 0.5, ... counts in a table although the true one may lie below.
    ties = log.index[log.correct & (log.radius > 0) & (np.abs(log.radius % _STEP) < 1e-9)].tolist()
    message = (
        "radii have three digits, rounded to the nearest: about half of them claim more than was shown; "
        f"correct images exactly on a multiple of {_STEP:g}, where a table counts them: {len(ties)}"
    )
    yield Finding("warning", "rounding", message, tuple(ties))


def check_cap(log: Results, sigma: float, stated: SampleSettings) -> Iterator[Finding]:
    """Finds radii above the largest that n unanimous votes can show."""
    # n votes out of n give the largest radius there is; written digits leave a little room above it.
    top = max_radius(stated.n, stated.alpha, sigma, log.law.radius)
    digits = digits_of(log)
    above = np.array([r > 0 and r > top + digits.room(r) for r in log.radius.tolist()], dtype=bool)
    most = float(log.radius.max(initial=0.0))
    message = (
        f"radii, up to {most:g} ({most / sigma:.4g} sigma), are above {top:.4g} "
        f"({top / sigma:.4g} sigma), the largest that {stated} can show"
    )
    yield from _rows(log, above, "cap", message)


def check_settings(fits: Sequence[Fit], sigma: float, stated: SampleSettings | None) -> Iterator[Finding]:
    """Says what the radii reveal, and contradicts stated settings that they exclude."""
    if not fits:
        return
    # Stated settings are contradicted by radii that they cannot give.
    for each in fits:
        if each.settings == stated and not each.possible:
            radii = ", ".join(f"{radius:g}" for radius in each.missed[:3])
            more = ", ..." if len(each.missed) > 3 else ""
            where = f"{len(each.missed)} of the largest radii ({radii}{more})"
            yield Finding("error", "settings", f"{where} cannot come from the stated {stated}")
    # Then what the radii tell on their own.
    excluded = [each.settings for each in fits if not each.possible and each.settings in _USUAL]
    if (best := best_fit(fits)) is not None:
        message = (
            f"the {best.matched} largest radii fit {best.settings} "
            f"(sigma {sigma:g}; by chance with probability {best.chance:.1g})"
        )
        yield Finding("note", "inferred", message)
    elif not any(each.possible for each in fits):
        message = f"the largest radii fit no usual n and alpha at sigma {sigma:g}"
        yield Finding("warning", "inferred", message)
    elif excluded:
        listed = "; ".join(str(settings) for settings in sorted(excluded))
        yield Finding("note", "inferred", f"the largest radii exclude {listed}, and tell no more")
    else:
        yield Finding("note", "inferred", "the largest radii do not tell n and alpha")


def check_manifest(manifest: Manifest) -> Iterator[Finding]:
    """Finds what a manifest leaves open or contradicts."""
    # A network that was passed in Python has no file; the hash of its state takes the place of the weights'.
    stated = {name: getattr(manifest, name) for name in _NEEDED}
    stated["weights"] = manifest.weights or manifest.network.get("state")
    if missing := [name for name, value in stated.items() if not value]:
        yield Finding("warning", "manifest", f"the manifest does not state {', '.join(missing)}")
    if manifest.norm not in (None, manifest.law.norm):
        noise, proved = manifest.certify.noise, manifest.law.norm
        message = f"the manifest says {manifest.norm} radii, but {noise} noise proves {proved}"
        yield Finding("error", "norm", message)


def check_votes(log: Results, manifest: Manifest) -> Iterator[Finding]:
    """Finds rows that were changed after they were written, or do not follow from their own votes."""
    # One finding for each kind of error, with the first row as an example.
    wrong: dict[str, list[RowError]] = {}
    checked = (verify_row(row, manifest) for row in log.rows)
    for error in (*log.errors, *(each for each in checked if isinstance(each, RowError))):
        wrong.setdefault(error.code, []).append(error)
    for code, errors in wrong.items():
        first = errors[0]
        message = f"{len(errors)} rows are not as they were certified; image {first.image}: {first.message}"
        yield Finding("error", code, message, tuple(error.image for error in errors))


def _rows(log: Results, wrong: Bools, code: str, message: str) -> Iterator[Finding]:
    """Yields an error about some rows, if there are any; its text is their number and the message."""
    if wrong.any():
        rows = tuple(log.index[wrong].tolist())
        yield Finding("error", code, f"{len(rows)} {message}", rows)
