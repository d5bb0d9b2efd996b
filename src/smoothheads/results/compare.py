"""Summaries of certification logs, and comparisons image by image: paired differences are sharper than two
numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothheads.certify.bounds import max_radius
from smoothheads.errors import LedgerError
from smoothheads.results import metrics
from smoothheads.results.derive import is_recountable, recertified
from smoothheads.results.metrics import Estimate, Floats, Interval, bootstrap, mean, paired_test, percentiles
from smoothheads.results.read import read_logs
from smoothheads.results.results import Results, check_labels_agree, flatten

Source = Results | Path | str
_WRITTEN = 2e-6  # what our six decimals and the correction of the noise take off a radius


@dataclass(frozen=True, slots=True)
class Summary:
    """Every mean over the images of one log that a table prints; None where the log does not tell."""

    log: Results
    acr: Estimate
    radii: tuple[float, ...]
    certified: tuple[Estimate, ...]
    """Certified accuracy at each of `radii`."""
    accuracy: float
    """Fraction of images that are correct and not abstained: certified accuracy at radius 0."""
    abstained: Estimate
    noisy_accuracy: Estimate | None
    """Fraction of noisy samples that the base classifier classifies correctly."""
    hard_accuracy: Estimate | None
    """The same on the hardest half of the images: of this log's, or of all that are compared."""
    ceiling: float | None
    """The largest radius that n, alpha and sigma allow."""
    at_ceiling: float | None
    """Fraction of images whose radius is bounded by the samples, not by the network."""
    samples: Estimate | None
    """Samples per image, those of the selection included."""
    seconds: Estimate
    """Seconds per image."""


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """A number with its 95 % bootstrap interval over images."""

    value: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """Tells how evenly the classes of one log are served, which ACR does not show."""

    present: int
    worst: int
    """The class with the smallest ACR."""
    certified: Bootstrapped
    """The number of classes with at least one correctly certified image."""
    worst_acr: Bootstrapped
    """The smallest class ACR."""
    spread: Bootstrapped
    """The largest class ACR minus the smallest."""
    worst_accuracy: tuple[Bootstrapped, ...]
    """The smallest certified accuracy of a class, at each radius."""
    draws: Floats = field(repr=False)
    """All of these numbers for every bootstrap sample; equal seeds draw equal images, which pairs logs."""

    def to_dict(self, radii: Sequence[float]) -> dict[str, Any]:
        """Returns plain values with their intervals; `radii` are those of `worst_accuracy`."""

        def plain(each: Bootstrapped) -> dict[str, Any]:
            return {"value": each.value, "interval": list(each.interval)}

        at_radii = zip(radii, self.worst_accuracy, strict=True)
        return {
            "present": self.present,
            "certified": plain(self.certified),
            "worst": self.worst,
            "worst_acr": plain(self.worst_acr),
            "spread": plain(self.spread),
            "worst_certified": [{"radius": radius, **plain(each)} for radius, each in at_radii],
        }


@dataclass(frozen=True, slots=True)
class Paired:
    """Two means over the same images, and the mean of their difference."""

    baseline: float
    this: float
    difference: float
    standard_error: float | None
    """Standard error of the difference, image by image; None for a number that is no mean over images."""
    interval: Interval
    """95 % bootstrap interval of the difference."""
    p_value: float | None = None
    """Exact paired test of equal certified accuracy; None for other numbers."""

    @property
    def differs(self) -> bool:
        """The images show a difference: by the exact test, or where there is none by the interval."""
        outside = not self.interval.low <= 0 <= self.interval.high
        return outside if self.p_value is None else self.p_value < 0.05


@dataclass(frozen=True, slots=True)
class Difference:
    """The gain of one log on the first; `noisy_accuracy` and `hard_accuracy` need the votes of both."""

    name: str
    baseline: str
    acr: Paired
    certified: tuple[Paired, ...]
    noisy_accuracy: Paired | None
    """Fraction of samples classified correctly, which does not depend on n, alpha or easy images."""
    hard_accuracy: Paired | None
    """The same on the half of the images that all logs together find hardest."""
    worst_acr: Paired
    """The smallest class ACR; the class may be another one in each log."""
    spread: Paired
    """The largest class ACR minus the smallest."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The first log is the baseline of every difference."""

    logs: tuple[Results, ...]
    radii: tuple[float, ...]
    summaries: tuple[Summary, ...]
    classes: tuple[ClassSummary, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    """Images that were left out, settings that differ or are unknown, and what the numbers do not cover."""

    def __repr__(self) -> str:
        lines = [f"Comparison of {len(self.logs)} logs on {len(self.logs[0]):,} images"]
        for log, summary in zip(self.logs, self.summaries, strict=True):
            lines.append(f"  {log.name}: ACR {summary.acr.value:.4f}, {summary.accuracy:.1%} certified")
        for each in self.differences:
            low, high = each.acr.interval
            gain = f"{each.acr.difference:+.4f} [{low:+.4f}, {high:+.4f}]"
            lines.append(f"  {each.name} against {each.baseline}: ACR {gain}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def summarize(
    log: Results, radii: Sequence[float] | None = None, hard: NDArray[np.intp] | None = None
) -> Summary:
    """Returns every number of one log, with its standard error over images.

    Args:
        radii: The radii r of certified accuracy; by default steps of a quarter.
        hard: The positions of the hardest half, where logs are compared on the same one.
    """
    chosen = metrics.default_radii(float(log.radius.max())) if radii is None else tuple(radii)
    hits = log.certified_at(chosen)
    noisy = log.noisy
    if noisy is not None and hard is None:
        hard = metrics.hardest_half(noisy)
    # Our own radii are exact up to their six decimals, others are written with three digits.
    ceiling, room = ceiling_of(log), _WRITTEN if log.rows else None
    top = None if ceiling is None else float(metrics.at_ceiling(log.radius, ceiling, room).mean())
    return Summary(
        log=log,
        acr=mean(log.certified_radius),
        radii=chosen,
        certified=tuple(mean(column) for column in hits.T),
        accuracy=float(log.correct.mean()),
        abstained=mean(log.abstained),
        noisy_accuracy=None if noisy is None else mean(noisy),
        hard_accuracy=None if noisy is None else mean(noisy[hard]),
        ceiling=ceiling,
        at_ceiling=top,
        samples=None if log.samples is None else mean(log.samples.astype(np.float64)),
        seconds=mean(log.seconds),
    )


def summarize_classes(
    log: Results, radii: Sequence[float], *, seed: int = 0, resamples: int = 1000
) -> ClassSummary:
    """Returns how evenly the classes of one log are served, with bootstrap intervals over images."""
    count = len(log)
    classes, member = np.unique(log.label, return_inverse=True)
    membership = sparse.csr_array((np.ones(count), (member, np.arange(count))), (len(classes), count))
    # Sums per class of: images, certified radii, hits at each radius. A bootstrap sample weights the images.
    columns = np.column_stack([np.ones(count), log.certified_radius, log.certified_at((0.0, *radii))])
    draws, generator = np.empty((1 + resamples, columns.shape[1])), np.random.default_rng(seed)
    # Row 0 are the images themselves, every other row draws as many with replacement.
    for i in range(1 + resamples):
        chosen = generator.integers(count, size=count) if i else np.arange(count)
        weights = np.bincount(chosen, minlength=count)
        sums = membership @ (weights[:, None] * columns)  # [classes, 3 + radii]
        # Class means of the classes that were drawn; of them the number above 0, the smallest, the spread.
        drawn = sums[sums[:, 0] > 0]
        acr, hits = drawn[:, 1] / drawn[:, 0], drawn[:, 2:] / drawn[:, :1]
        served = np.count_nonzero(hits[:, 0])
        draws[i] = [served, acr.min(), acr.max() - acr.min(), *hits.min(axis=0)[1:]]
    intervals = percentiles(draws[1:])
    numbers = [Bootstrapped(float(v), interval) for v, interval in zip(draws[0], intervals, strict=True)]
    certified, worst_acr, spread, *accuracy = numbers
    return ClassSummary(len(classes), log.worst_class, certified, worst_acr, spread, tuple(accuracy), draws)


def ceiling_of(log: Results) -> float | None:
    """Returns the largest radius that the log's n, alpha and sigma allow, None where they are unknown."""
    if log.n is None or log.alpha is None or log.sigma is None or log.norm != log.law.norm:
        return None
    return max_radius(log.n, log.alpha, log.sigma, log.law.radius)


def compare(
    *sources: Source | Sequence[Source],
    radii: Sequence[float] | None = None,
    align: bool = False,
    seed: int = 0,
    resamples: int = 2000,
) -> Comparison:
    """Compares results in memory, ledgers or anybody's logs; the first is the baseline.

    Raises LedgerError for logs that differ in norm or labels; and for those that differ in images, alpha, n
    or budget, unless `align` is set: then only the images that all of them hold are compared, votes are
    certified again at the smallest alpha, and every remaining difference is named in the notes.

    Args:
        radii: The radii r of certified accuracy; by default steps of a quarter.
        align: Whether logs that differ are compared on what they share.
    """
    # 1. Read everything, and refuse what no alignment can make comparable.
    logs = read_logs(flatten(sources))
    if not logs:
        raise LedgerError("There is nothing to compare; name at least one log.")
    for log in logs:
        if log.norm != logs[0].norm:
            raise LedgerError(
                f"{logs[0].name} has {logs[0].norm} radii and {log.name} {log.norm} radii; different norms "
                "measure different threats, so report them apart."
            )
    check_labels_agree(logs)
    # 2. Bring the logs to the same images and settings, or insist on them.
    notes: list[str] = []
    if align:
        logs = align_logs(logs, notes)
    else:
        _require_comparable(logs)

    # 3. Summaries of each log, and differences from the first one.
    top = max(float(log.radius.max()) for log in logs)
    chosen = metrics.default_radii(top) if radii is None else tuple(radii)
    # The hardest half is that of all logs together, so that every table speaks of the same images.
    noisy = [log.noisy for log in logs if log.noisy is not None]
    hard = metrics.hardest_half(np.sum(noisy, axis=0)) if noisy else None
    # One seed for every log, so that bootstrap samples of the classes are paired.
    classes = [summarize_classes(log, chosen, seed=seed, resamples=resamples // 2) for log in logs]
    resample = partial(bootstrap, generator=np.random.default_rng(seed), resamples=resamples)
    return Comparison(
        logs=tuple(logs),
        radii=chosen,
        summaries=tuple(summarize(log, chosen, hard) for log in logs),
        classes=tuple(classes),
        differences=tuple(
            _difference((logs[0], log), chosen, hard, (classes[0], of_log), resample)
            for log, of_log in zip(logs[1:], classes[1:], strict=True)
        ),
        notes=(*notes, *_cautions(logs)),
    )


def _difference(
    pair: tuple[Results, Results],
    radii: tuple[float, ...],
    hard: NDArray[np.intp] | None,
    classes: tuple[ClassSummary, ClassSummary],
    resample: Callable[[Floats], list[Interval]],
) -> Difference:
    """Pairs a log with the baseline, image by image."""

    def paired(columns: Sequence[Floats]) -> list[Paired]:
        before, after = columns
        gains = after - before
        return [
            Paired(float(before[:, i].mean()), float(after[:, i].mean()), *mean(gains[:, i]), interval)
            for i, interval in enumerate(resample(gains))
        ]

    # Means over images [images, columns]: ACR, certified accuracy at each radius, accuracy under noise.
    noisy = [log.noisy for log in pair if log.noisy is not None]
    hits = [log.certified_at(radii) for log in pair]
    columns = [np.column_stack([log.certified_radius, hit]) for log, hit in zip(pair, hits, strict=True)]
    if voted := len(noisy) == 2:
        columns = [np.column_stack(both) for both in zip(columns, noisy, strict=True)]
    acr, *rest = paired(columns)
    # Certified accuracy has an exact paired test besides.
    tests = [paired_test(one, other) for one, other in zip(hits[0].T, hits[1].T, strict=True)]
    certified = tuple(replace(each, p_value=p) for each, p in zip(rest, tests, strict=False))
    hard_accuracy = paired([values[hard, None] for values in noisy])[0] if voted else None

    # The smallest class ACR and the spread are no means over images: both logs share their bootstrap samples.
    before, after = (each.draws for each in classes)
    gains = after - before
    intervals = percentiles(gains[1:])
    worst_acr, spread = (
        Paired(float(before[0, i]), float(after[0, i]), float(gains[0, i]), None, intervals[i])
        for i in (1, 2)
    )
    return Difference(
        name=pair[1].name,
        baseline=pair[0].name,
        acr=acr,
        certified=certified,
        noisy_accuracy=rest[-1] if voted else None,
        hard_accuracy=hard_accuracy,
        worst_acr=worst_acr,
        spread=spread,
    )


def _differing_settings(logs: Sequence[Results]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each setting in which logs differ that makes radii incomparable, with its values by log."""
    for name in ("alpha", "n", "budget"):
        known = {log.name: getattr(log, name) for log in logs if getattr(log, name) is not None}
        if len(set(known.values())) > 1:
            yield name, known


def _require_comparable(logs: Sequence[Results]) -> None:
    """Raises LedgerError for unfinished logs, and for other images or settings than the baseline's."""
    baseline = logs[0]
    for log in logs:
        if log.missing:
            raise LedgerError(
                f"{log.name} has {len(log)} of {len(log) + log.missing} images; let the certification end, "
                "or add --align (in Python align=True) to report what is there."
            )
        if not np.array_equal(log.index, baseline.index):
            images = metrics.image_differences(log.index.tolist(), baseline.index.tolist())
            kinds = {"others": images.other, "missing": images.missing, "twice": images.doubled}
            found = [f"{len(some)} {kind} (as {some[0]})" for kind, some in kinds.items() if some]
            how = ", ".join(found) or "the same ones in another order"
            raise LedgerError(
                f"{log.name} has other images than {baseline.name} ({how}); to compare the images that all "
                "logs share, add --align (in Python align=True)."
            )
    for name, known in _differing_settings(logs):
        (one, value), *others = known.items()
        other, differing = next(each for each in others if each[1] != value)
        raise LedgerError(
            f"{other} has {name} {differing} and {one} {value}; certify with equal settings, or add --align "
            "(in Python align=True) and mind the notes."
        )


def align_logs(logs: Sequence[Results], notes: list[str]) -> list[Results]:
    """Returns the logs on their common images, at the smallest alpha, and notes what was done."""
    # 1. The images that every log holds, in rising order.
    common = reduce(np.intersect1d, [log.index for log in logs])
    if not len(common):
        raise LedgerError("The logs have no image in common; compare logs of the same data.")
    # 2. The smallest alpha of all: certificates at it hold at the larger ones too.
    smallest = min((log.alpha for log in logs if log.alpha is not None), default=None)
    matched = []
    for log in logs:
        total = len(log) + log.missing
        if log.missing:
            notes.append(f"{log.name}: {log.missing} of {total} images are not certified yet")
        if len(log) > len(common):
            notes.append(f"{log.name}: {len(log) - len(common)} of {len(log)} images are in no other log")
        positions = {index: i for i, index in enumerate(log.index.tolist())}
        chosen = log[[positions[index] for index in common.tolist()]]
        if chosen.alpha is not None and chosen.alpha != smallest and is_recountable(chosen):
            chosen = recertified(chosen, alpha=smallest)
            notes.append(f"{log.name}: certified again at alpha {smallest:g} from its votes")
        matched.append(chosen)
    # 3. What still differs is for the reader to weigh.
    for name, known in _differing_settings(matched):
        listed = ", ".join(f"{log} {value}" for log, value in known.items())
        notes.append(f"radii are not comparable one to one: {name} differs ({listed})")
    return matched


def _cautions(logs: Sequence[Results]) -> Iterator[str]:
    """Yields what the numbers of these logs do not say."""
    unknown = [log.name for log in logs if log.alpha is None or log.n is None]
    if unknown and len(logs) > 1:
        yield f"alpha and n are not stated by {', '.join(unknown)}: audit them before comparing"
    if names := [log.name for log in logs if log.budget == "table"]:
        yield f"{', '.join(names)}: budget table, so that radii are steps and ACR is a sum below the true one"
    if len(logs) > 1:
        yield "Every log is of one trained network: nothing here says how much training again would change."
