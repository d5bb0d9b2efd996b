"""What a certificate says and what it does not, in plain words and with the run's own numbers."""

from __future__ import annotations

from smoothheads.results.metrics import false_certificates
from smoothheads.results.results import Results


def guaranteed(log: Results) -> list[str]:
    alpha = "the log's alpha (not stated)" if log.alpha is None else f"{log.alpha:g}"
    lines = [
        "For each image on its own: either the smoothed classifier abstained, or no change of the image with "
        f"an {log.norm} norm below its radius alters the answer. Pixel values are measured from 0 to 1.",
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
    return [
        "That the answer is right: a wrong answer can be certified as well. Certified accuracy counts right "
        "ones only.",
        "Anything about the network without noise, or at another sigma, precision, engine or set of weights: "
        "the certificate belongs to the function that was sampled.",
        f"Changes larger than the radius, or small in another sense than the {log.norm} norm (rotation, "
        "crop).",
        f"Other images: the standard errors say how far {len(log):,} images speak for others of their kind.",
    ]


def scope(log: Results) -> str:
    """The noise's own sentence on what arithmetic the certificate covers."""
    stated = None if log.manifest is None else log.manifest.scope
    return f"Scope: {stated}." if stated else "Scope: this log does not say how its noise was computed."
