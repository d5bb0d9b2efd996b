"""How sure the smoothed classifier stays within a radius: lower bounds on a mean score under Gaussian noise
(Kumar et al. 2020), from the scores of independent noisy samples. Bounds are rounded down.

The certified function is the mean score; the share of votes is the special case of scores 0 and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothheads.config.check import between, check_radius, check_sigma
from smoothheads.errors import SoundnessError
from smoothheads.noise.l2 import DOWN, UP, quantile_below

Floats = NDArray[np.float64]
ConfidenceMethod = Literal["distribution", "mean"]
_ROUNDING = 1e-15  # of a probability or a quantile near 0


@dataclass(frozen=True, slots=True)
class Confidence:
    """With probability at least 1 - alpha: at every point closer than `radius` (l2) the mean score of
    `prediction` under noise is at least `lower`."""

    prediction: int
    radius: float
    lower: float
    score: float
    """The mean over the noisy samples of the image itself: an estimate, no bound."""
    n: int


def confidence_lower(
    scores: Floats,
    radius: float,
    *,
    sigma: float,
    alpha: float,
    correction: float = 0.0,
    method: ConfidenceMethod = "distribution",
) -> float:
    """Lower bound on the mean score in [0, 1] at every point closer than `radius`, from the scores [n] of
    independent noisy samples; holds with probability at least 1 - alpha, at all radii at once.

    distribution: the share of samples above each score is bounded by the DKW inequality and falls as in the
    theorem. mean: only the mean is bounded and falls; better at small radii, where the sampling error counts
    most. `correction` is the noise's.
    """
    check_sigma(sigma)
    check_radius(radius)
    between("alpha", alpha, 0, 0.5)
    _check_scores(scores)
    if method == "mean":
        return mean_lower(max(0.0, empirical_bernstein(scores, alpha) - correction), radius, sigma)
    ordered, n = np.sort(scores), scores.size
    slack = (math.sqrt(math.log(1 / alpha) / (2 * n)) + correction) * UP + _ROUNDING
    at_least = np.clip(np.arange(n, 0, -1) / n - slack, 0.0, 1.0)  # P(score >= ordered[j]), from below
    z = special.ndtri(at_least)
    shifted = special.ndtr(z - (1 - DOWN) * np.abs(z) - _ROUNDING - radius / sigma * UP)
    return max(0.0, float(np.diff(ordered, prepend=0.0) @ shifted) * DOWN)


def mean_lower(mean: float, radius: float, sigma: float) -> float:
    """Lower bound within `radius` on a smoothed score in [0, 1] that is at least `mean` < 1 at the centre:
    its probit changes by at most radius / sigma."""
    check_sigma(sigma)
    check_radius(radius)
    return float(special.ndtr(quantile_below(mean) - radius / sigma * UP)) * DOWN if mean > 0 else 0.0


def empirical_bernstein(scores: Floats, alpha: float) -> float:
    """Lower bound on the mean of independent scores in [0, 1], with probability at least 1 - alpha (Maurer
    and Pontil 2009); 0 for less than two scores."""
    n = scores.size
    if n < 2:
        return 0.0
    level = math.log(2 / alpha)
    slack = math.sqrt(2 * float(scores.var(ddof=1)) * level / n) + 7 * level / (3 * (n - 1))
    return max(0.0, (float(scores.mean()) - slack) * DOWN)


def _check_scores(scores: Floats) -> None:
    """A NaN is not in [0, 1] either."""
    if not (scores.ndim == 1 and scores.size > 0 and bool(np.all((scores >= 0) & (scores <= 1)))):
        raise SoundnessError(
            "scores [n] in [0, 1]", f"{scores!r}", "pass probabilities of independent noisy samples"
        )
