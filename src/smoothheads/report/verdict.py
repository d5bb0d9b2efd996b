"""What the numbers say, in plain words, before any table: made from them, never chosen."""

from __future__ import annotations

from smoothheads.results.compare import Comparison, Difference, Paired, Summary
from smoothheads.results.results import Results


def sentences(comparison: Comparison) -> list[str]:
    """One on every log, one on every difference from the first, and what they do not cover."""
    pairs = zip(comparison.logs, comparison.summaries, strict=True)
    found = [_of_one(log, summary) for log, summary in pairs]
    found += [_of_two(each, comparison) for each in comparison.differences]
    if comparison.differences:
        found.append(
            f"The intervals are over the {len(comparison.logs[0]):,} images. One network of each kind was "
            "trained, so they do not cover training again: another seed may turn small differences around."
        )
    return found


def _of_one(log: Results, summary: Summary) -> str:
    middle = len(summary.radii) // 2
    at = f"{100 * summary.certified[middle].value:.1f} % at {log.norm} radius {summary.radii[middle]:g}"
    return (
        f"{log.name}: {100 * summary.accuracy:.1f} % of {summary.images:,} images are answered right and "
        f"certified, {at}; the average certified radius is {summary.acr.value:.3f}."
    )


def _of_two(difference: Difference, comparison: Comparison) -> str:
    name, baseline = difference.name, difference.baseline
    at_radii = list(zip(comparison.radii, difference.certified, strict=True))
    better = [f"{radius:g}" for radius, paired in at_radii if paired.differs and paired.difference > 0]
    worse = [f"{radius:g}" for radius, paired in at_radii if paired.differs and paired.difference < 0]
    parts = [_radius(difference.acr)]
    parts += [f"certified accuracy is higher at radius {', '.join(better)}"] if better else []
    parts += [f"certified accuracy is lower at radius {', '.join(worse)}"] if worse else []
    if not better and not worse:
        parts.append("certified accuracy differs at no radius of the table")
    if (noisy := difference.noisy_accuracy) is not None and noisy.differs:
        word = "more" if noisy.difference > 0 else "fewer"
        parts.append(
            f"{abs(100 * noisy.difference):.1f} points {word} of the noise samples are answered right"
        )
    unlike = "not certified alike (see the notes), so read with care: " if _unlike(comparison) else ""
    return f"{name} against {baseline}: {unlike}{'; '.join(parts)}."


def _unlike(comparison: Comparison) -> bool:
    """Radii of other settings differ whatever the networks."""
    settings = {(log.sigma, log.alpha, log.n, log.budget) for log in comparison.logs}
    return len(settings) > 1


def _radius(acr: Paired) -> str:
    low, high = acr.interval
    shown = f"{acr.difference:+.3f} (95 %: {low:+.3f} to {high:+.3f})"
    if not acr.differs:
        return f"these images show no difference of the average certified radius, {shown}"
    return f"the average certified radius is {'larger' if acr.difference > 0 else 'smaller'}, {shown}"
