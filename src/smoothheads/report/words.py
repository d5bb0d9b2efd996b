"""Results in plain words: the verdict of a comparison, the guarantee, an audit.

Every sentence is made from the numbers, never chosen.
"""

from __future__ import annotations

import textwrap
from typing import Any

from smoothheads.errors import printable
from smoothheads.results.audit import Audit, Finding
from smoothheads.results.compare import ClassSummary, Comparison, Difference, Paired, Summary
from smoothheads.results.metrics import false_certificates
from smoothheads.results.results import Results

_SHOWN = 8  # images that a finding names


def verdict(comparison: Comparison) -> list[str]:
    """Returns a sentence on every log, one on every difference from the first, and what they do not cover."""
    pairs = zip(comparison.summaries, comparison.classes, strict=True)
    sentences = [_of_one(summary, classes) for summary, classes in pairs]
    sentences += [_of_two(each, comparison) for each in comparison.differences]
    if comparison.differences:
        sentences.append(
            f"The intervals are over the {len(comparison.logs[0]):,} images. One network of each kind was "
            "trained, so they do not cover training again: another seed may turn small differences around."
        )
    return sentences


def _of_one(summary: Summary, classes: ClassSummary) -> str:
    """Returns the sentence on one log, at the middle one of the radii."""
    log, middle = summary.log, len(summary.radii) // 2
    at = f"{100 * summary.certified[middle].value:.1f} % at {log.norm} radius {summary.radii[middle]:g}"
    given_up = classes.present - round(classes.certified.value)
    lost = f" It certifies no image of {given_up} of the {classes.present} classes." if given_up else ""
    return (
        f"{log.name}: {100 * summary.accuracy:.1f} % of {len(log):,} images are classified correctly "
        f"and certified, {at}; the average certified radius is {summary.acr.value:.3f}.{lost}"
    )


def _of_two(difference: Difference, comparison: Comparison) -> str:
    """Returns the sentence on one difference."""
    name, baseline = difference.name, difference.baseline
    at_radii = list(zip(comparison.radii, difference.certified, strict=True))
    better = [f"{radius:g}" for radius, paired in at_radii if paired.differs and paired.difference > 0]
    worse = [f"{radius:g}" for radius, paired in at_radii if paired.differs and paired.difference < 0]
    # First the radii, then what differs beyond doubt: accuracy, the worst class, samples under noise.
    parts = [_radius(difference.acr, "average certified radius")]
    parts += [f"certified accuracy is higher at radius {', '.join(better)}"] if better else []
    parts += [f"certified accuracy is lower at radius {', '.join(worse)}"] if worse else []
    if not better and not worse:
        parts.append("certified accuracy differs at no radius of the table")
    if difference.worst_acr.differs:
        parts.append(_radius(difference.worst_acr, "ACR of the worst class"))
    if (noisy := difference.noisy_accuracy) is not None and noisy.differs:
        word = "more" if noisy.difference > 0 else "fewer"
        points = abs(100 * noisy.difference)
        parts.append(f"{points:.1f} points {word} of the noisy samples are classified correctly")
    # Radii of other settings differ whatever the networks.
    settings = {(log.sigma, log.alpha, log.n, log.budget) for log in comparison.logs}
    unlike = "not certified alike (see the notes), so read with care: " if len(settings) > 1 else ""
    return f"{name} against {baseline}: {unlike}{'; '.join(parts)}."


def _radius(paired: Paired, what: str) -> str:
    low, high = paired.interval
    change = f"{paired.difference:+.3f} (95 %: {low:+.3f} to {high:+.3f})"
    if not paired.differs:
        return f"these images show no difference of the {what}, {change}"
    return f"the {what} is {'larger' if paired.difference > 0 else 'smaller'}, {change}"


def guaranteed(log: Results) -> list[str]:
    """Returns what a certificate of this log says."""
    alpha = "the log's alpha (not stated)" if log.alpha is None else f"{log.alpha:g}"
    lines = [
        "For each image on its own: either the smoothed classifier abstained, or no change of the image with "
        f"an {log.norm} norm below its radius alters the prediction. Pixel values are measured from 0 to 1.",
        f"The noise is sampled, so this statement is wrong with probability at most {alpha} per image, "
        "whatever the network.",
    ]
    if log.alpha is not None:
        wrong = false_certificates(len(log), log.alpha)
        images = f"{len(log):,} images"
        lines.append(
            f"All {images} together: with probability 0.999 no more than {wrong} of the statements are wrong."
        )
    return lines


def not_guaranteed(log: Results) -> list[str]:
    """Returns what a reader might think that a certificate says, and it does not."""
    return [
        "That the prediction is correct: a wrong one can be certified as well. Certified accuracy counts "
        "only correct ones.",
        "Anything about the network without noise, or at another sigma, precision, engine or set of weights: "
        "the certificate belongs to the function that was sampled.",
        f"Changes larger than the radius, or small in another sense than the {log.norm} norm (rotation, "
        "crop).",
        f"Other images: the standard errors say how far {len(log):,} images speak for others of their kind.",
    ]


def scope(log: Results) -> str:
    """Returns the noise's own sentence on what arithmetic the certificate covers."""
    stated = None if log.manifest is None else log.manifest.scope
    return f"Scope: {stated}." if stated else "Scope: this log does not say how its noise was computed."


def audit_text(audit: Audit, width: int = 100) -> str:
    """Returns a headline, then every finding with its images, in lines of at most `width` characters."""
    counts = [
        f"{count} {severity}" + ("" if count == 1 else "s")
        for severity in ("error", "warning")
        if (count := sum(finding.severity == severity for finding in audit.findings))
    ]
    result = ", ".join(counts) or "nothing wrong found"
    sigma = "sigma unknown" if audit.sigma is None else f"sigma {audit.sigma:g}"
    stated = "n and alpha not stated" if audit.stated is None else f"stated {audit.stated}"
    lines = [f"{audit.name}: {result} ({audit.images:,} images, {sigma}, {stated})"]
    for finding in audit.findings:
        first = f"  {finding.severity:<8}{finding.code:<15} "
        text = f"{finding.message}{_images(finding)}"
        lines += textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first))
    if audit.unseen:
        text = f"No audit of a log can see {'; '.join(audit.unseen)}."
        lines += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ")
    return printable("\n".join(lines))


def audit_json(audit: Audit) -> dict[str, Any]:
    """Returns plain values for `json.dumps`."""
    best = audit.best_fit
    return {
        "name": audit.name,
        "sound": audit.sound,
        "images": audit.images,
        "sigma": audit.sigma,
        "stated": None if audit.stated is None else audit.stated._asdict(),
        "best_fit": best and {**best.settings._asdict(), "matched": best.matched, "chance": best.chance},
        "excluded": [each.settings._asdict() for each in audit.fits if not each.possible],
        "findings": [
            {"severity": f.severity, "code": f.code, "message": f.message, "rows": list(f.rows)}
            for f in audit.findings
        ],
        "unseen": list(audit.unseen),
    }


def _images(finding: Finding) -> str:
    if not finding.rows:
        return ""
    more = f" and {len(finding.rows) - _SHOWN} more" if len(finding.rows) > _SHOWN else ""
    return f" [idx {', '.join(map(str, finding.rows[:_SHOWN]))}{more}]"
