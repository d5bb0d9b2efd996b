"""Compares certification logs image by image: paired differences are sharper than two numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from smoothheads.errors import LedgerError
from smoothheads.results import metrics
from smoothheads.results.intervals import Interval, bootstrap, mean, paired_test
from smoothheads.results.log import Floats, Log
from smoothheads.results.recertify import recertified, recountable
from smoothheads.results.summary import Summary, summarize


@dataclass(frozen=True, slots=True)
class Paired:
    """Two means over the same images, and the mean of their difference."""

    baseline: float
    this: float
    difference: float
    standard_error: float
    """Of the difference, image by image."""
    interval: Interval
    """Of the difference: bootstrap, 95 %."""
    p_value: float | None = None
    """Exact paired test of equal certified accuracy; None for other numbers."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`noisy_accuracy` and `hard_accuracy` need the votes of both logs."""

    name: str
    baseline: str
    acr: Paired
    certified: tuple[Paired, ...]
    noisy_accuracy: Paired | None
    """Share of noisy copies classified right, which does not depend on n, alpha or easy images."""
    hard_accuracy: Paired | None
    """The same on the half of the images that both together find hardest."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The first log is the baseline of every difference."""

    logs: tuple[Log, ...]
    radii: tuple[float, ...]
    summaries: tuple[Summary, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    """What a reader must know: images left out, settings that differ or are unknown."""


def compare(
    logs: Sequence[Log],
    radii: Sequence[float] | None = None,
    *,
    align: bool = False,
    seed: int = 0,
    resamples: int = 2000,
) -> Comparison:
    """Refuses (LedgerError) logs that differ in norm; and in images, alpha or n, unless `align`: then only
    the images that all of them hold are compared, votes are certified again at the smallest alpha, and every
    remaining difference is named in the notes."""
    if not logs:
        raise LedgerError("at least one log", "none", "name the logs to compare")
    _require_equal_norms(logs)
    matched, notes = _align(logs) if align else (tuple(logs), ())
    if not align:
        _require_complete(matched)
        _require_comparable(matched)
    _require_equal_labels(matched)
    top = max(float(log.radius.max()) for log in matched)
    chosen = metrics.default_radii(top) if radii is None else tuple(radii)
    generator = np.random.default_rng(seed)
    baseline, *others = matched
    return Comparison(
        logs=matched,
        radii=chosen,
        summaries=tuple(summarize(log, chosen) for log in matched),
        differences=tuple(_difference(baseline, log, chosen, generator, resamples) for log in others),
        notes=(*notes, *_unknown(matched)),
    )


def _difference(
    baseline: Log, log: Log, radii: tuple[float, ...], generator: np.random.Generator, resamples: int
) -> Difference:
    old, new = (metrics.certified(each.correct, each.radius, radii) for each in (baseline, log))
    before, after = (
        np.column_stack([metrics.certified_radii(each.correct, each.radius), reached])
        for each, reached in ((baseline, old), (log, new))
    )
    p_values = [None, *(paired_test(new[:, i], old[:, i]) for i in range(len(radii)))]
    acr, *certified = _paired(before, after, generator, resamples, p_values)
    noisy, hard = _noisy(baseline, log, generator, resamples)
    return Difference(log.name, baseline.name, acr, tuple(certified), noisy, hard)


def _noisy(
    baseline: Log, log: Log, generator: np.random.Generator, resamples: int
) -> tuple[Paired | None, Paired | None]:
    """On all images and on the hardest half."""
    before, after = (each.label_probability() if each.has_votes else None for each in (baseline, log))
    if before is None or after is None:
        return None, None
    hard = metrics.hardest_half(before + after)
    parts = ((before, after), (before[hard], after[hard]))
    noisy, harder = (_paired(old[:, None], new[:, None], generator, resamples)[0] for old, new in parts)
    return noisy, harder


def _paired(
    before: Floats,
    after: Floats,
    generator: np.random.Generator,
    resamples: int,
    p_values: Sequence[float | None] = (None,),
) -> list[Paired]:
    """For each column of [images, columns]."""
    gains = after - before
    intervals = bootstrap(gains, generator, resamples=resamples)
    return [
        Paired(float(before[:, i].mean()), float(after[:, i].mean()), *mean(gains[:, i]), interval, p_value)
        for i, (interval, p_value) in enumerate(zip(intervals, p_values, strict=True))
    ]


def _require_complete(logs: Sequence[Log]) -> None:
    for log in logs:
        if log.missing:
            raise LedgerError(
                f"all {len(log) + log.missing} images of {log.name}",
                f"{len(log)}",
                "run the certification to its end, or align to report what is there",
            )


def _require_comparable(logs: Sequence[Log]) -> None:
    baseline = logs[0]
    for log in logs[1:]:
        if not np.array_equal(log.index, baseline.index):
            raise LedgerError(
                f"the {len(baseline)} images of {baseline.name}",
                f"{len(log)} others in {log.name}" if len(log) != len(baseline) else f"others in {log.name}",
                "align them to the images that both hold",
            )
        for name in ("alpha", "n"):
            ours, theirs = getattr(baseline, name), getattr(log, name)
            if None not in (ours, theirs) and ours != theirs:
                raise LedgerError(
                    f"{name} = {ours:g} as in {baseline.name}",
                    f"{theirs:g} in {log.name}",
                    "certify with equal settings, or align and mind the notes",
                )


def _require_equal_norms(logs: Sequence[Log]) -> None:
    for log in logs[1:]:
        if log.norm != logs[0].norm:
            raise LedgerError(
                f"{logs[0].norm} radii as in {logs[0].name}",
                f"{log.norm} radii in {log.name}",
                "radii in different norms measure different threats; report them apart",
            )


def _require_equal_labels(logs: Sequence[Log]) -> None:
    for log in logs[1:]:
        differ = np.flatnonzero(log.label != logs[0].label)
        if len(differ):
            i = int(differ[0])
            raise LedgerError(
                f"label {logs[0].label[i]} of image {logs[0].index[i]} as in {logs[0].name}",
                f"{log.label[i]} in {log.name}",
                "compare logs of the same data",
            )


def _align(logs: Sequence[Log]) -> tuple[tuple[Log, ...], tuple[str, ...]]:
    common = reduce(np.intersect1d, [log.index for log in logs])
    if not len(common):
        raise LedgerError("images that all logs hold", "none", "compare logs of the same data")
    matched, notes = [], []
    for log in logs:
        if log.missing:
            notes.append(
                f"{log.name}: {log.missing} of {len(log) + log.missing} images are not certified yet"
            )
        if len(log) > len(common):
            notes.append(f"{log.name}: {len(log) - len(common)} of {len(log)} images are in no other log")
        positions = {int(index): i for i, index in enumerate(log.index)}
        chosen = log.take(np.array([positions[int(index)] for index in common]))
        smallest = min((each.alpha for each in logs if each.alpha is not None), default=None)
        if chosen.alpha is not None and chosen.alpha != smallest and recountable(chosen):
            chosen = recertified(chosen, alpha=smallest)
            notes.append(f"{log.name}: certified again at alpha {smallest:g} from its votes")
        matched.append(chosen)
    return tuple(matched), (*notes, *_unequal(matched))


def _unequal(logs: Sequence[Log]) -> Iterator[str]:
    for name in ("alpha", "n"):
        known = {log.name: getattr(log, name) for log in logs if getattr(log, name) is not None}
        if len(set(known.values())) > 1:
            listed = ", ".join(f"{log} {value:g}" for log, value in known.items())
            yield f"radii are not comparable one to one: {name} differs ({listed})"


def _unknown(logs: Sequence[Log]) -> tuple[str, ...]:
    names = [log.name for log in logs if log.alpha is None or log.n is None]
    if not names or len(logs) == 1:
        return ()
    return (f"alpha and n are not stated by {', '.join(names)}: audit them before comparing",)
