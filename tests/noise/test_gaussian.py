"""Float Gaussian noise: right distribution, and labelled as what it is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from smoothheads.noise import make_noise
from smoothheads.types import Grid, Phase


@pytest.mark.parametrize(("q", "sigma"), [(16, 0.5), (255, 0.25)])
def test_distribution_is_normal_around_the_image(q: int, sigma: float) -> None:
    """Kolmogorov-Smirnov at a false-alarm rate of 1e-6."""
    image = np.full((1, 8, 8), q, dtype=np.uint8)
    copies = make_noise("gaussian", sigma, Grid(q), 3, 500).noisy(image, 0, Phase.ESTIMATION, 0)
    assert stats.kstest((copies.ravel() - 1.0) / sigma, "norm").pvalue > 1e-6


def test_scope_is_honest_and_nothing_is_corrected() -> None:
    noise = make_noise("gaussian", 0.25, Grid(255), 0, 10)
    assert "idealised arithmetic" in noise.scope
    assert noise.correction(3072) == 0.0
