"""Compares certification logs image by image: paired differences are sharper than two numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothheads.errors import LedgerError
from smoothheads.results import metrics
from smoothheads.results.intervals import Interval, bootstrap, mean, paired_test
from smoothheads.results.read import as_results
from smoothheads.results.recertify import obstacle, recertified
from smoothheads.results.results import Floats, Ints, Results
from smoothheads.results.summary import Summary, summarize

Positions = NDArray[np.intp] | None
Draw = Callable[[Floats], list[Interval]]


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

    @property
    def differs(self) -> bool:
        """The images show a difference: by the exact test, or where there is none by the interval."""
        outside = not self.interval.low <= 0 <= self.interval.high
        return outside if self.p_value is None else self.p_value < 0.05


@dataclass(frozen=True, slots=True)
class Difference:
    """`noisy_accuracy` and `hard_accuracy` need the votes of both logs."""

    name: str
    baseline: str
    acr: Paired
    certified: tuple[Paired, ...]
    noisy_accuracy: Paired | None
    """Share of samples classified right, which does not depend on n, alpha or easy images."""
    hard_accuracy: Paired | None
    """The same on the half of the images that all logs together find hardest."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The first log is the baseline of every difference."""

    logs: tuple[Results, ...]
    radii: tuple[float, ...]
    summaries: tuple[Summary, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    """What a reader must know: images left out, settings that differ or are unknown."""


def compare(
    sources: Sequence[Results | Path | str],
    radii: Sequence[float] | None = None,
    *,
    align: bool = False,
    seed: int = 0,
    resamples: int = 2000,
) -> Comparison:
    """Of results in memory, ledgers or anybody's logs. Refuses (LedgerError) those that differ in norm; and
    in images, alpha, n, budget or bound, unless `align`: then only the images that all of them hold are
    compared, votes are certified again at the smallest alpha, and every remaining difference is named in the
    notes."""
    logs = as_results(sources)
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
    hard = _hard_half(matched)
    draw = partial(bootstrap, generator=np.random.default_rng(seed), resamples=resamples)
    baseline, *others = matched
    return Comparison(
        logs=matched,
        radii=chosen,
        summaries=tuple(summarize(log, chosen, hard) for log in matched),
        differences=tuple(_difference(baseline, log, chosen, hard, draw) for log in others),
        notes=(*notes, *_cautions(matched)),
    )


def _difference(
    baseline: Results, log: Results, radii: tuple[float, ...], hard: Positions, draw: Draw
) -> Difference:
    old, new = (metrics.certified(logs.correct, logs.radius, radii) for logs in (baseline, log))
    before, after = (metrics.certified_radii(logs.correct, logs.radius) for logs in (baseline, log))
    noisy, harder = _noisy(baseline, log, hard, draw)
    return Difference(
        log.name,
        baseline.name,
        _paired(before, after, draw),
        tuple(
            _paired(a.astype(np.float64), b.astype(np.float64), draw, paired_test(b, a))
            for a, b in zip(old.T, new.T, strict=True)
        ),
        noisy,
        harder,
    )


def _noisy(
    baseline: Results, log: Results, hard: Positions, draw: Draw
) -> tuple[Paired | None, Paired | None]:
    """On all images and on the hardest half."""
    before, after = (logs.label_probability() if logs.has_votes else None for logs in (baseline, log))
    if before is None or after is None or hard is None:
        return None, None
    return _paired(before, after, draw), _paired(before[hard], after[hard], draw)


def _paired(before: Floats, after: Floats, draw: Draw, p_value: float | None = None) -> Paired:
    gains = after - before
    (interval,) = draw(gains[:, None])
    return Paired(float(before.mean()), float(after.mean()), *mean(gains), interval, p_value)


def _hard_half(logs: Sequence[Results]) -> Positions:
    """Of all logs that have votes together, so that every table speaks of the same images."""
    known = [p for log in logs if log.has_votes and (p := log.label_probability()) is not None]
    return metrics.hardest_half(np.sum(known, axis=0)) if known else None


def _require_complete(logs: Sequence[Results]) -> None:
    for log in logs:
        if log.missing:
            raise LedgerError(
                f"all {len(log) + log.missing} images of {log.name}",
                f"{len(log)}",
                "run the certification to its end, or align to report what is there",
            )


def _require_comparable(logs: Sequence[Results]) -> None:
    baseline = logs[0]
    for log in logs[1:]:
        if not np.array_equal(log.index, baseline.index):
            raise LedgerError(
                f"the {len(baseline)} images of {baseline.name}",
                f"{_apart(log.index, baseline.index)} in {log.name}",
                "align them to the images that both hold",
            )
        for name in ("alpha", "n", "budget"):
            ours, theirs = getattr(baseline, name), getattr(log, name)
            if None not in (ours, theirs) and ours != theirs:
                raise LedgerError(
                    f"{name} {_said(ours)} as in {baseline.name}",
                    f"{_said(theirs)} in {log.name}",
                    "certify with equal settings, or align and mind the notes",
                )


def _apart(index: Ints, baseline: Ints) -> str:
    """How the images differ from those of the baseline, in words."""
    more, fewer = np.setdiff1d(index, baseline), np.setdiff1d(baseline, index)
    parts = [f"{len(more)} others (as {more[0]})"] if len(more) else []
    parts += [f"{len(fewer)} missing (as {fewer[0]})"] if len(fewer) else []
    if len(index) != len(set(index.tolist())):
        parts.append("some of them twice")
    return ", ".join(parts) or "the same ones in another order"


def _said(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _require_equal_norms(logs: Sequence[Results]) -> None:
    for log in logs[1:]:
        if log.norm != logs[0].norm:
            raise LedgerError(
                f"{logs[0].norm} radii as in {logs[0].name}",
                f"{log.norm} radii in {log.name}",
                "radii in different norms measure different threats; report them apart",
            )


def _require_equal_labels(logs: Sequence[Results]) -> None:
    for log in logs[1:]:
        differ = np.flatnonzero(log.label != logs[0].label)
        if len(differ):
            i = int(differ[0])
            raise LedgerError(
                f"label {logs[0].label[i]} of image {logs[0].index[i]} as in {logs[0].name}",
                f"{log.label[i]} in {log.name}",
                "compare logs of the same data",
            )


def _align(logs: Sequence[Results]) -> tuple[tuple[Results, ...], tuple[str, ...]]:
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
        if chosen.alpha is not None and chosen.alpha != smallest and obstacle(chosen) is None:
            chosen = recertified(chosen, alpha=smallest)
            notes.append(f"{log.name}: certified again at alpha {smallest:g} from its votes")
        matched.append(chosen)
    return tuple(matched), (*notes, *_unequal(matched))


def _unequal(logs: Sequence[Results]) -> Iterator[str]:
    for name in ("alpha", "n", "budget"):
        known = {log.name: getattr(log, name) for log in logs if getattr(log, name) is not None}
        if len(set(known.values())) > 1:
            listed = ", ".join(f"{log} {_said(value)}" for log, value in known.items())
            yield f"radii are not comparable one to one: {name} differs ({listed})"


def _cautions(logs: Sequence[Results]) -> Iterator[str]:
    unknown = [log.name for log in logs if log.alpha is None or log.n is None]
    if unknown and len(logs) > 1:
        yield f"alpha and n are not stated by {', '.join(unknown)}: audit them before comparing"
    if names := [log.name for log in logs if log.budget == "table"]:
        yield f"{', '.join(names)}: budget table, so that radii are steps and ACR is a sum below the true one"
    if len(logs) > 1:
        yield "Every log is of one trained network: nothing here says how much training again would change."
