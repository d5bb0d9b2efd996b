"""What can be wrong with any certification log, ours or foreign. Each check yields its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from smoothheads.certify.radius import max_radius
from smoothheads.results.ladder import Ladder, SampleSettings, digits_of
from smoothheads.results.manifest import Manifest
from smoothheads.results.recount import Damage, damage
from smoothheads.results.results import Results

Severity = Literal["error", "warning", "note"]
Expected = int | Sequence[int] | None
_USUAL_STEPS = (20, 100)
_TEST_SETS = (10_000, 50_000)  # CIFAR-10 and ImageNet, of which the field certifies every k-th image


@dataclass(frozen=True, slots=True)
class Finding:
    """error: a number of the log is wrong; warning: it may mislead; note: good to know."""

    severity: Severity
    code: str
    message: str
    rows: tuple[int, ...] = ()
    """Indices of the images concerned, where there are some in particular."""


def completeness(log: Results, expected: Expected) -> Iterator[Finding]:
    indices = log.index.tolist()
    twice = sorted(index for index, count in Counter(indices).items() if count > 1)
    if twice:
        yield Finding("error", "duplicates", f"{len(twice)} images appear more than once", tuple(twice))
    if np.any(np.diff(log.index) < 0):
        yield Finding("warning", "unsorted", "images are not in rising order")
    if expected is not None:
        yield from _against(set(indices), expected)
        return
    yield from _progression(sorted(set(indices)))


def columns(log: Results) -> Iterator[Finding]:
    written = log.columns.get("correct", ())
    wrong = [i for i, text in enumerate(written) if text not in _TRUTH[bool(log.correct[i])]]
    totals = [str(total) for total in np.cumsum(log.correct)]
    if wrong and list(written) == totals:
        yield Finding("error", "correct-column", "column `correct` is a running total, not 0 or 1 per image")
    elif wrong:
        message = f"column `correct` contradicts label and predict in {len(wrong)} rows"
        yield Finding("error", "correct-column", message, _named(log, wrong))
    bad = np.flatnonzero(log.abstained & (log.radius != 0)).tolist()
    if bad:
        yield Finding("error", "abstention", f"{len(bad)} abstentions have a radius", _named(log, bad))
    negative = np.flatnonzero(log.radius < 0).tolist()
    if negative:
        yield Finding("error", "negative", f"{len(negative)} radii are below 0", _named(log, negative))
    clock = [":" in text for text in log.columns.get("time", ())]
    if any(clock) and not all(clock):
        yield Finding("warning", "time", "column `time` mixes seconds and H:MM:SS")
    elif clock and not any(clock):
        yield Finding("note", "time", "column `time` is in seconds, not H:MM:SS")


def rounding(log: Results, step: float = 0.25) -> Iterator[Finding]:
    """Three digits, rounded to the nearest: about half of the written radii are larger than the true ones."""
    shown = log.radius[log.radius > 0]
    if not len(shown) or digits_of(log).significant > 3:
        return
    ties = np.flatnonzero(log.correct & (log.radius > 0) & (np.abs(log.radius % step) < 1e-9)).tolist()
    message = (
        "radii have three digits, rounded to the nearest: about half of them claim more than was shown; "
        f"right answers exactly on a multiple of {step:g}, where a table counts them: {len(ties)}"
    )
    yield Finding("warning", "rounding", message, _named(log, ties))


def cap(log: Results, sigma: float, stated: SampleSettings) -> Iterator[Finding]:
    top = max_radius(stated.n, stated.alpha, sigma, log.law.radius)
    digits = digits_of(log)
    above = [i for i, r in enumerate(log.radius.tolist()) if r > 0 and r > top + digits.room(r)]
    if above:
        most = float(log.radius.max())
        message = (
            f"{len(above)} radii, up to {most:g} ({most / sigma:.4g} sigma), are above {top:.4g} "
            f"({top / sigma:.4g} sigma), the largest that {stated} can show"
        )
        yield Finding("error", "cap", message, _named(log, above))


def ladder(rungs: Ladder, stated: SampleSettings | None) -> Iterator[Finding]:
    """Says what the radii reveal, and contradicts stated settings that they exclude."""
    revealed = rungs.revealed
    if stated is not None and not (fit := rungs.fit(stated)).possible:
        radii = ", ".join(f"{radius:g}" for radius in fit.missed[:3])
        where = f"{len(fit.missed)} of the largest radii ({radii}{', ...' if len(fit.missed) > 3 else ''})"
        yield Finding("error", "settings", f"{where} cannot come from the stated {stated}")
    if revealed is not None:
        message = (
            f"the {revealed.matched} largest radii fit {revealed.settings} "
            f"(sigma {rungs.sigma:g}; by chance with probability {revealed.chance:.1g})"
        )
        yield Finding("note", "ladder", message)
        return
    possible = [fit.settings for fit in rungs.fits if fit.possible]
    excluded = [fit.settings for fit in rungs.fits if not fit.possible and fit.settings in _USUAL]
    if not possible:
        yield Finding(
            "warning", "ladder", f"the largest radii fit no usual n and alpha at sigma {rungs.sigma:g}"
        )
    elif excluded:
        listed = "; ".join(str(settings) for settings in sorted(excluded))
        yield Finding("note", "ladder", f"the largest radii exclude {listed}, and tell no more")
    else:
        yield Finding("note", "ladder", "the largest radii do not tell n and alpha")


def manifest_fields(manifest: Manifest) -> Iterator[Finding]:
    missing = [name for name in _NEEDED if not getattr(manifest, name)]
    if missing:
        yield Finding("warning", "manifest", f"the manifest does not state {', '.join(missing)}")
    if manifest.norm not in (None, manifest.law.norm):
        noise, proved = manifest.noise, manifest.law.norm
        message = f"the manifest says {manifest.norm} radii, but {noise} noise proves {proved}"
        yield Finding("error", "norm", message)


def votes(log: Results) -> Iterator[Finding]:
    """No row was changed after it was written, and every certificate follows from its own votes."""
    if log.manifest is None:
        return
    if not log.checked:
        yield Finding("note", "checksums", "a ledger of version 1: it has no checksums, only its votes")
    wrong: dict[str, list[Damage]] = {}
    for damaged in (*log.damage, *damage(log.rows, log.manifest)):
        wrong.setdefault(damaged.code, []).append(damaged)
    for code, rows in wrong.items():
        message = f"{len(rows)} rows are not as they were certified; image {rows[0].image}: {rows[0].message}"
        yield Finding("error", code, message, tuple(row.image for row in rows))


_NEEDED = ("engine", "weights", "data", "indices", "versions")
_TRUTH = {True: ("1", "1.0", "True", "true"), False: ("0", "0.0", "False", "false")}
_USUAL = (SampleSettings(10**5, 0.001), SampleSettings(10**5, 0.01))


def _against(present: set[int], expected: int | Sequence[int]) -> Iterator[Finding]:
    if isinstance(expected, int):
        if len(present) != expected:
            yield Finding("error", "incomplete", f"{len(present)} of {expected} images")
        return
    missing = sorted(set(expected) - present)
    other = sorted(present - set(expected))
    if missing:
        message = f"{len(present) - len(other)} of {len(expected)} images; {len(missing)} are missing"
        yield Finding("error", "incomplete", message, tuple(missing))
    if other:
        yield Finding("error", "unexpected", f"{len(other)} images do not belong to the run", tuple(other))


def _progression(indices: list[int]) -> Iterator[Finding]:
    """Nobody says which images there should be: every k-th of one of the field's test sets, most likely."""
    if len(indices) < 3:
        return
    step = Counter(np.diff(indices).tolist()).most_common(1)[0][0]
    missing = sorted(set(range(indices[0], indices[-1] + 1, step)) - set(indices))
    uneven = [index for index in indices if (index - indices[0]) % step]
    if uneven:
        yield Finding("note", "uneven", f"images do not follow one step; most are {step} apart")
    elif missing:
        yield Finding(
            "error", "gaps", f"{len(missing)} images are missing inside (every {step}th)", tuple(missing)
        )
    if not uneven:
        yield from _truncated(indices, step)


def _truncated(indices: list[int], step: int) -> Iterator[Finding]:
    """Rows go on to the end of one of the field's test sets. Fewer were chosen, or the log was cut: a choice
    is round, while a cut at random ends at a multiple of a hundred with a chance of 1 in 100."""
    size = next((size for size in _TEST_SETS if indices[-1] < size), None)
    whole = len(range(indices[0], size, step)) if size else 0
    count = len(range(indices[0], indices[-1] + 1, step))
    if size is None or count >= whole or (step not in _USUAL_STEPS and 4 * count < whole):
        return  # whole, or more likely of another data set
    message = (
        f"{len(indices)} of {whole} images, if the log is of every {step}th of {size:,}: it ends at index "
        f"{indices[-1]}, which goes on to {indices[0] + step * (whole - 1)}"
    )
    if count % 100 == 0 and 2 * count < whole:
        chance = "so round a number was chosen, or comes by a cut with a chance of 1 in 100"
        yield Finding("note", "incomplete", f"{message}; {chance}")
    else:
        yield Finding("warning", "incomplete", message)


def _named(log: Results, positions: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(log.index[i]) for i in positions)
