"""Percentile smoothing of real-valued outputs, such as regression (Chiang et al. 2020, median smoothing).

The smoothed function is a percentile of f(x + e), e Gaussian. Within a radius r it stays between the
percentiles Phi(Phi^-1(q) -+ r / sigma) at x itself, which order statistics of noisy samples bracket.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor

from smoothheads.certify.soundness import require_function
from smoothheads.config.check import at_least, between, check_radius, check_sigma
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise import Noise
from smoothheads.noise.l2 import DOWN, UP, quantile_above, quantile_below
from smoothheads.types import Phase, Pixels

Floats = NDArray[np.float64]
Outputs = Callable[[Tensor], Tensor]
"""From noisy samples [N, channels, height, width] to N outputs of any shape, each of its own sample alone."""
_TOLERANCE = 1e-3  # of the probe: how far another summation order may move an output, of the largest one


@dataclass(frozen=True, slots=True)
class PercentileInterval:
    """With probability at least 1 - alpha: at every point closer than `radius` (l2) the percentiles of all
    outputs lie between `lower` and `upper`. Arrays of the shape of one output; infinite where n is too small
    to tell."""

    lower: Floats
    upper: Floats
    estimate: Floats
    """The percentile at the image itself: no bound."""
    radius: float
    n: int


def percentile_interval(
    function: Outputs,
    image: Pixels,
    noise: Noise,
    *,
    index: int,
    radius: float,
    quantile: float = 0.5,
    n: int = 10_000,
    alpha: float = 0.001,
) -> PercentileInterval:
    """Samples `function` on n noisy samples of the image. Several outputs share alpha equally.

    Raises SoundnessError where an output is not finite, or depends on anything but its own sample.
    """
    if noise.law.norm != "l2":
        raise ConfigError("Gaussian noise (grid or gaussian)", noise.law.name, "percentiles need it")
    _check(quantile, radius, noise.sigma, n, alpha)
    outputs = _sample(function, image, noise, index, n)
    low, high = percentile_ranks(
        quantile,
        radius,
        sigma=noise.sigma,
        n=n,
        alpha=alpha / max(1, math.prod(outputs.shape[1:])),
        correction=noise.correction(image.size),
    )
    infinite = np.full((1, *outputs.shape[1:]), np.inf)
    ordered = np.concatenate([-infinite, np.sort(outputs, axis=0), infinite])
    middle = ordered[math.ceil(quantile * n)]
    return PercentileInterval(ordered[low], ordered[high], middle, radius, n)


def percentile_ranks(
    quantile: float, radius: float, *, sigma: float, n: int, alpha: float, correction: float = 0.0
) -> tuple[int, int]:
    """Ranks (from 1) among n sorted outputs that bracket the smoothed percentile anywhere within `radius`,
    with probability at least 1 - alpha. Rank 0 stands for minus infinity and n + 1 for infinity.

    `correction` is the noise's.
    """
    _check(quantile, radius, sigma, n, alpha)
    shift = radius / sigma * UP
    below = float(special.ndtr(quantile_below(quantile) - shift)) * DOWN - correction
    above = float(special.ndtr(-quantile_above(quantile) - shift)) * DOWN - correction
    return _rank(below, n, alpha / 2), n + 1 - _rank(above, n, alpha / 2)


def _rank(p: float, n: int, alpha: float) -> int:
    """The largest k with P(Bin(n, p) < k) <= alpha: fewer than k samples below it are unlikely."""
    k = int(stats.binom.ppf(alpha, n, p)) if p > 0 else 0
    while k > 0 and float(stats.binom.cdf(k - 1, n, p)) * UP > alpha:
        k -= 1
    return k


def _check(quantile: float, radius: float, sigma: float, n: int, alpha: float) -> None:
    check_sigma(sigma)
    check_radius(radius)
    between("alpha", alpha, 0, 0.5)
    between("quantile", quantile, 0, 1)
    at_least("n", n, 1)


def _rows(function: Outputs, samples: Tensor) -> Tensor:
    """Outputs as [1, N, outputs]."""
    outputs = function(samples)
    if outputs.ndim == 0 or len(outputs) != len(samples):
        raise SoundnessError(
            f"an output for each of {len(samples)} samples",
            f"outputs of shape {tuple(outputs.shape)}",
            "let the first dimension be that of the batch",
        )
    return outputs.reshape(1, len(samples), -1)


@torch.inference_mode()
def _sample(function: Outputs, image: Pixels, noise: Noise, index: int, n: int) -> Floats:
    """Outputs [n, ...] in float64; whole blocks are computed, so that each depends on its key alone."""
    found: list[Tensor] = []
    for block in range(-(-n // noise.block_size)):
        samples = torch.from_numpy(noise.noisy(image, index, Phase.SCORES, block))
        if not found:
            require_function(lambda batch: _rows(function, batch), samples, _TOLERANCE, logits=False)
        outputs = function(samples)[: n - block * noise.block_size]
        if not bool(torch.isfinite(outputs).all()):
            raise SoundnessError(
                "finite outputs", f"NaN or infinity on noisy samples of image {index}", "repair the function"
            )
        found.append(outputs.to("cpu", torch.float64))
    sampled: Floats = torch.cat(found).numpy()
    return sampled
