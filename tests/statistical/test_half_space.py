"""Noise, votes and bounds together: the smoothed half-space classifier, whose true radius is a distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from smoothheads.certify.algorithm import CertifyParams
from smoothheads.certify.budgets import FixedBudget
from smoothheads.noise import NOISES, Noise
from smoothheads.types import Counts, Grid, Phase, Pixels

SIGMA, ALPHA, IMAGES = 0.25, 0.05, 400


@dataclass(frozen=True)
class HalfSpace:
    """Class 1 iff normal . x > level; its smoothed form flips exactly at distance |normal . x - level|."""

    noise: Noise
    image: Pixels
    index: int
    normal: NDArray[np.float64]
    level: float

    def __call__(self, phase: Phase, count: int) -> Counts:
        blocks = range(count // self.noise.block_size)
        copies = np.concatenate([self.noise.noisy(self.image, self.index, phase, block) for block in blocks])
        answers = copies.reshape(count, -1) @ self.normal > self.level
        return np.bincount(answers, minlength=2).astype(np.int64)


@pytest.mark.parametrize(("name", "q"), [("gaussian", 255), ("grid", 255), ("grid", 16)])
def test_certified_radii_stay_below_the_distance(name: str, q: int) -> None:
    rng = np.random.default_rng(q)
    image = rng.integers(0, q + 1, (1, 8, 8), dtype=np.uint8)
    normal = rng.standard_normal(64)
    normal /= np.linalg.norm(normal)
    distance = 0.3
    level = float(image.ravel() / q @ normal) - distance
    noise = NOISES.get(name)().keyed(SIGMA, Grid(q), 3, 100)
    params = CertifyParams(sigma=SIGMA, alpha=ALPHA, correction=noise.correction(64))
    certificates = [
        FixedBudget(n=200).certify(HalfSpace(noise, image, index, normal, level), params)
        for index in range(IMAGES)
    ]
    errors = sum(certificate.radius > distance for certificate in certificates)
    assert stats.binom.sf(errors - 1, IMAGES, ALPHA) > 1e-6
    assert {certificate.prediction for certificate in certificates} == {1}
    assert np.mean([certificate.radius for certificate in certificates]) > 0.7 * distance
    # The votes themselves: rounding to the grid adds 1/12 of a squared step, as if the noise were wider.
    spread = (SIGMA**2 + (1 / 12 / q**2 if name == "grid" else 0)) ** 0.5
    hits = sum(certificate.k for certificate in certificates)
    assert stats.binomtest(hits, IMAGES * 200, float(special.ndtr(distance / spread))).pvalue > 1e-6
