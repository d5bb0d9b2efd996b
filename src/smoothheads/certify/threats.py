"""Certificates beyond the l2 ball and the first class, each from bounds that sampling gives.

Every result is rounded towards the weaker statement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from smoothheads.certify.radius import check_sigma, quantile_above, quantile_below
from smoothheads.errors import ConfigError

_SHRINK = 1 - 1e-12


def linf_radius(l2_radius: float, dimension: int) -> float:
    """The largest l-infinity ball inside an l2 ball; a derived number, weak in high dimension."""
    _require(dimension >= 1, "dimension >= 1", str(dimension))
    return l2_radius / math.sqrt(dimension) * _SHRINK


def l1_radius_uniform(p_lower: float, half_width: float) -> float:
    """For noise uniform on [-half_width, half_width] in every coordinate (Yang et al. 2020)."""
    _check_bound(p_lower, half_width)
    return max(0.0, 2 * half_width * (p_lower - 0.5) * _SHRINK)


def linf_radius_uniform(p_lower: float, half_width: float, dimension: int) -> float:
    """For the same noise against l-infinity perturbations."""
    _check_bound(p_lower, half_width)
    _require(dimension >= 1, "dimension >= 1", str(dimension))
    if p_lower <= 0.5:
        return 0.0
    return -2 * half_width * math.expm1(math.log(1.5 - p_lower) / dimension) * _SHRINK


def l1_radius_laplace(p_lower: float, scale: float) -> float:
    """For Laplace noise of this scale in every coordinate (Teng et al. 2020)."""
    _check_bound(p_lower, scale)
    return max(0.0, -scale * math.log(2 * (1 - p_lower)) * _SHRINK) if p_lower > 0.5 else 0.0


def top_k_radius(p_lower: float, others_upper: Sequence[float], k: int, sigma: float) -> float:
    """Radius within which a class stays among the k most likely (Jia et al. 2020).

    `others_upper` bounds every other class from above; all bounds, p_lower included, must hold at once, as
    they do at level alpha / C each.
    """
    check_sigma(sigma)
    _require(1 <= k <= len(others_upper), f"1 <= k <= {len(others_upper)}", str(k))
    _check_bound(p_lower, sigma)
    rivals = sorted(others_upper, reverse=True)[:k]
    return max(_rivals_radius(p_lower, rivals[-count:], sigma) for count in range(1, k + 1))


def _rivals_radius(p_lower: float, rivals: Sequence[float], sigma: float) -> float:
    """Below this radius the class is likelier than the least of these rivals: than their mean."""
    together = min(1 - p_lower, math.fsum(rivals) * (1 + 1e-12))
    if not (p_lower > 0 and 0 < together < 1):
        return 0.0
    z, z_rivals = quantile_below(p_lower), quantile_above(together)

    def ahead(radius: float) -> bool:
        return float(special.ndtr(z - radius)) > float(special.ndtr(z_rivals + radius)) / len(rivals)

    low, high = 0.0, 1.0
    if not ahead(low):
        return 0.0
    while ahead(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if ahead(middle) else (low, middle)
    return sigma * low * _SHRINK


def confidence_lower(scores: NDArray[np.float64], radius: float, sigma: float, alpha: float) -> float:
    """Lower bound on the mean score in [0, 1] anywhere within `radius`, from scores of independent noisy
    copies; holds with probability at least 1 - alpha (Kumar et al. 2020, with the DKW inequality)."""
    check_sigma(sigma)
    _check_alpha(alpha)
    ordered = np.sort(np.asarray(scores, dtype=np.float64).ravel())
    inside = ordered.size > 0 and ordered[0] >= 0 and ordered[-1] <= 1  # false for NaN, which sorts last
    _require(bool(inside), "scores in [0, 1]", f"{ordered.size} scores")
    n = ordered.size
    slack = math.sqrt(math.log(1 / alpha) / (2 * n))
    at_least = np.clip(np.arange(n, 0, -1) / n - slack, 0.0, 1.0)  # P(score >= ordered[j]), from below
    shifted = special.ndtr(special.ndtri(at_least) - radius / sigma)
    return max(0.0, float(np.diff(ordered, prepend=0.0) @ shifted) * _SHRINK)


def mean_lower(mean: float, radius: float, sigma: float) -> float:
    """Lower bound within `radius` on a smoothed score in [0, 1] that is at least `mean` at the centre: its
    probit changes by at most radius / sigma."""
    check_sigma(sigma)
    _require(0 <= mean < 1, "0 <= mean < 1", f"{mean:g}")
    return float(special.ndtr(quantile_below(mean) - radius / sigma)) * _SHRINK if mean > 0 else 0.0


def percentile_ranks(quantile: float, radius: float, sigma: float, n: int, alpha: float) -> tuple[int, int]:
    """Ranks (from 1) among n sorted outputs that bracket the smoothed percentile anywhere within `radius`,
    with probability at least 1 - alpha (median smoothing, Chiang et al. 2020).

    Rank 0 stands for minus infinity and n + 1 for infinity.
    """
    check_sigma(sigma)
    _check_alpha(alpha)
    _require(0 < quantile < 1 and n >= 1, "0 < quantile < 1 and n >= 1", f"{quantile:g} and {n}")
    shift = radius / sigma
    p_low = float(special.ndtr(quantile_below(quantile) - shift)) * _SHRINK
    p_high = 1 - float(special.ndtr(-quantile_above(quantile) - shift)) * _SHRINK
    return int(stats.binom.ppf(alpha / 2, n, p_low)), n + 1 - int(stats.binom.ppf(alpha / 2, n, 1 - p_high))


def _check_bound(p_lower: float, scale: float) -> None:
    _require(0 <= p_lower < 1, "0 <= p_lower < 1", repr(p_lower))
    _require(math.isfinite(scale) and scale > 0, "a positive scale of the noise", f"{scale:g}")


def _check_alpha(alpha: float) -> None:
    _require(0 < alpha < 0.5, "0 < alpha < 0.5", f"{alpha:g}")


def _require(holds: bool, expected: str, got: str) -> None:
    if not holds:
        raise ConfigError(expected, got, "check what is passed to this bound")
