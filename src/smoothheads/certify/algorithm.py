"""CERTIFY and PREDICT of Cohen, Rosenfeld and Kolter (2019), Algorithm 1, on votes.

Here is only statistics: noise, network, batching and storage are behind `sample`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy import special

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.radius import minimum_n
from smoothheads.certify.theorem import GAUSSIAN, Theorem
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.types import ABSTAIN, Certificate, Counts, Phase


class Sampler(Protocol):
    """Votes per class of one base classifier on `count` fresh noisy copies of one image.

    Copies are independent, and none is ever used in two calls.
    """

    def __call__(self, phase: Phase, count: int) -> Counts: ...


class Prediction(NamedTuple):
    prediction: int
    votes: Counts


def certify(
    sample: Sampler,
    *,
    sigma: float,
    n0: int,
    n: int,
    alpha: float,
    correction: float = 0.0,
    theorem: Theorem = GAUSSIAN,
) -> Certificate:
    """With probability at least 1 - alpha: it abstains, or the smoothed classifier answers `prediction` at
    every point closer than `radius`. `correction` is what the noise says must be taken off p_lower, and
    `theorem` what it proves."""
    require_samples(n0, n, alpha, correction)
    candidate = top_class(draw(sample, Phase.SELECTION, n0))
    k = int(draw(sample, Phase.ESTIMATION, n)[candidate])
    p_lower = max(0.0, clopper_pearson_lower(k, n, alpha) - correction)
    radius = theorem.radius(p_lower, sigma)
    return Certificate(candidate if radius > 0 else ABSTAIN, radius, p_lower, k, n, n0)


def predict(sample: Sampler, *, n: int, alpha: float, correction: float = 0.0) -> Prediction:
    """With probability at least 1 - alpha: it abstains, or returns the smoothed classifier's answer."""
    check_correction(correction)
    level = alpha - n * correction  # n copies together differ by at most this from exact noise
    if not 0 < alpha < 0.5 or two_sided_p_value(n, 0) > level:
        raise ConfigError(
            "n large enough that n equal votes decide (2^(1-n) <= alpha < 0.5)",
            f"n = {n}, alpha = {alpha:g}",
            "raise n: with so few samples every answer would be an abstention",
        )
    votes = draw(sample, Phase.ESTIMATION, n)
    first = top_class(votes)
    n_a, n_b = int(votes[first]), int(np.delete(votes, first).max(initial=0))
    return Prediction(first if two_sided_p_value(n_a, n_b) <= level else ABSTAIN, votes)


def two_sided_p_value(n_a: int, n_b: int) -> float:
    """Exact binomial test of n_a >= n_b votes against a fair coin, rounded up."""
    tail = float(special.betainc(n_a, n_b + 1, 0.5)) if n_a > 0 else 1.0
    return min(1.0, 2 * tail * (1 + 1e-12))


def top_class(votes: Counts) -> int:
    """The class with most votes; the smallest index among equals."""
    return int(np.argmax(votes))


def draw(sample: Sampler, phase: Phase, count: int) -> Counts:
    """Votes of exactly `count` copies; anything else is no basis for a bound."""
    votes = sample(phase, count)
    whole = votes.ndim == 1 and votes.size > 0 and np.issubdtype(votes.dtype, np.integer)
    if not whole or votes.min() < 0 or int(votes.sum()) != count:
        raise SoundnessError(
            f"one vote per class of each of {count} noisy copies",
            f"{votes!r}",
            "every copy must vote exactly once; a copy without a finite answer must stop the run",
        )
    return votes


def require_samples(n0: int, n: int, alpha: float, correction: float = 0.0) -> None:
    """Refuses, before the first sample, settings under which every answer would be an abstention."""
    check_correction(correction)
    if not 0 < alpha < 0.5:
        raise ConfigError("0 < alpha < 0.5", f"{alpha:g}", "0.001 is usual")
    if n0 < 1:
        raise ConfigError("n0 >= 1", str(n0), "100 is usual")
    if n < 1 or clopper_pearson_lower(n, n, alpha) - correction <= 0.5:
        least = minimum_n(alpha)
        raise ConfigError(f"n >= {least} for alpha = {alpha:g}", str(n), f"set n to {least} or more")


def check_correction(correction: float) -> None:
    if not 0 <= correction < 0.5:
        raise SoundnessError(
            "0 <= correction < 0.5", f"{correction:g}", "take it from the noise that is sampled"
        )


def check_label(label: int | None) -> None:
    """A negative label would count the votes of a class from the end, and name ABSTAIN as certified."""
    if label is not None and label < 0:
        raise ConfigError("label >= 0", str(label), "pass the data set's label, or none to be label-blind")
