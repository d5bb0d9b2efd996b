"""Other threats from the same votes: l-infinity balls, and the first k classes instead of the first.

Every radius is rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import special

from smoothheads.config.check import at_least, check_radius
from smoothheads.errors import ConfigError
from smoothheads.noise.laws import DOWN, UP, check_bound, half_width, quantile_above, quantile_below


def linf_radius(l2_radius: float, dimension: int) -> float:
    """Returns the radius of the largest l-infinity ball inside an l2 ball: weak in high dimension."""
    check_radius(l2_radius)
    at_least("dimension", dimension, 1)
    # |d|_2 <= sqrt(dimension) |d|_inf
    return l2_radius / math.sqrt(dimension) * DOWN


def linf_radius_of_l1(l1_radius: float, dimension: int) -> float:
    """Returns the radius of the largest l-infinity ball inside an l1 ball: weaker still."""
    check_radius(l1_radius)
    at_least("dimension", dimension, 1)
    # |d|_1 <= dimension |d|_inf
    return l1_radius / dimension * DOWN


def linf_radius_uniform(p_lower: float, sigma: float, dimension: int) -> float:
    """Returns the l-infinity radius under uniform noise (Yang et al. 2020).

    Cubes of side 2L that are shifted by r in every pixel share (1 - r / 2L)^dimension of their volume, and a
    class of probability p keeps the majority while that is above 3/2 - p.

    Args:
        p_lower: Lower bound on the probability of the class.
        sigma: Standard deviation of the noise, which decides L.
        dimension: Pixel values of an image.
    """
    check_bound(p_lower, sigma)
    at_least("dimension", dimension, 1)
    if p_lower <= 0.5:
        return 0.0
    # Solve (1 - r / 2L)^dimension = 3/2 - p for r.
    return -2 * half_width(sigma) * math.expm1(math.log(1.5 - p_lower) / dimension) * DOWN


def top_k_radius(p_lower: float, others_upper: Sequence[float], k: int, sigma: float) -> float:
    """Returns the l2 radius within which a class stays among the k most likely (Jia et al. 2020).

    All bounds must hold at once, as they do at level alpha / C each.

    Args:
        p_lower: Lower bound on the probability of the class.
        others_upper: Upper bounds on the probabilities of all other classes.
        k: Size of the set of most likely classes.
        sigma: Standard deviation of the noise.
    """
    check_bound(p_lower, sigma)
    if not 1 <= k <= len(others_upper):
        raise ConfigError(f"k is {k}; choose 1 <= k <= {len(others_upper)}, the number of other classes.")
    # The class leaves the first k only if it falls behind the least of some of its k strongest rivals.
    rivals = sorted(others_upper, reverse=True)[:k]
    return max(_rivals_radius(p_lower, rivals[-count:], sigma) for count in range(1, k + 1))


def _rivals_radius(p_lower: float, rivals: Sequence[float], sigma: float) -> float:
    """Returns the radius below which the class is likelier than the mean, so the least, of these rivals."""
    # The rivals' bounds add up, but all classes together have probability 1.
    together = min(math.nextafter(1 - p_lower, 2.0), math.fsum(rivals) * UP)
    if not (p_lower > 0 and 0 < together < 1):
        return 0.0
    # At distance r the class keeps at least Phi(z - r), and the rivals together get at most Phi(z' + r).
    z, z_rivals = quantile_below(p_lower), quantile_above(together)

    def ahead(radius: float) -> bool:
        return float(special.ndtr(z - radius)) > float(special.ndtr(z_rivals + radius)) / len(rivals)

    # Double until it is no longer ahead, then halve the interval.
    low, high = 0.0, 1.0
    if not ahead(low):
        return 0.0
    while ahead(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if ahead(middle) else (low, middle)
    return sigma * low * DOWN
