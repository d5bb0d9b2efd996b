"""Gaussian, uniform and Laplace noise in float32: right distributions, and labelled as what they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from smoothheads.noise import NOISES
from smoothheads.noise.laws import half_width, laplace_scale
from smoothheads.types import Grid, Phase

FALSE_ALARM = 1e-6
SIGMA = 0.5


@pytest.mark.parametrize(("q", "sigma"), [(16, 0.5), (255, 0.25)])
def test_gaussian_distribution(q: int, sigma: float) -> None:
    """Kolmogorov-Smirnov at a false-alarm rate of 1e-6."""
    image = np.full((1, 8, 8), q, dtype=np.uint8)
    copies = NOISES.get("gaussian")().keyed(sigma, Grid(q), 3, 500).noisy(image, 0, Phase.ESTIMATION, 0)
    assert stats.kstest((copies.ravel() - 1.0) / sigma, "norm").pvalue > 1e-6


def test_gaussian_scope_names_the_idealisation() -> None:
    noise = NOISES.get("gaussian")().keyed(0.25, Grid(255), 0, 10)
    assert "idealised arithmetic" in noise.scope
    assert noise.correction(3072) == 0.0


def drawn(name: str, q: int = 255) -> NDArray[np.float64]:
    image = np.full((1, 16, 16), q, dtype=np.uint8)
    copies = NOISES.get(name)().keyed(SIGMA, Grid(q), 3, 500).noisy(image, 0, Phase.ESTIMATION, 0)
    return copies.astype(np.float64) - 1.0


LAWS = {
    "uniform": stats.uniform(-math.sqrt(3) * SIGMA, 2 * math.sqrt(3) * SIGMA),
    "laplace": stats.laplace(0, SIGMA / math.sqrt(2)),
}


@pytest.mark.parametrize("q", [16, 255])
@pytest.mark.parametrize("name", LAWS)
def test_l1_distribution(name: str, q: int) -> None:
    noise = drawn(name, q).ravel()
    assert stats.kstest(noise, LAWS[name].cdf).pvalue > FALSE_ALARM
    assert float(LAWS[name].std()) == pytest.approx(SIGMA)
    assert noise.std() == pytest.approx(SIGMA, rel=0.02)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("uniform", [-0.5453377, 0.0195711, 0.7150434, -0.2741187]),
        ("laplace", [0.2508857, 0.2037027, 0.4714114, -0.4269248]),
    ],
)
def test_l1_samples_of_a_key_are_golden(name: str, first: list[float]) -> None:
    """Another stream in another release of numpy would make ledgers unrepeatable."""
    black = np.zeros((1, 1, 2), dtype=np.uint8)
    copies = NOISES.get(name)().keyed(SIGMA, Grid(255), 7, 2).noisy(black, 20, Phase.ESTIMATION, 3)
    np.testing.assert_allclose(copies.ravel(), first, atol=1e-7)


@pytest.mark.parametrize("name", LAWS)
def test_l1_distribution_test_tells_another_sigma(name: str) -> None:
    assert stats.kstest(1.03 * drawn(name).ravel(), LAWS[name].cdf).pvalue < FALSE_ALARM


@pytest.mark.parametrize("name", LAWS)
def test_l1_pixels_are_independent(name: str) -> None:
    pixels = drawn(name).reshape(500, -1)
    for one, other in ((pixels[:, :-1], pixels[:, 1:]), (pixels[:-1], pixels[1:])):
        assert stats.pearsonr(one.ravel(), other.ravel()).pvalue > FALSE_ALARM
        assert stats.pearsonr(np.abs(one).ravel(), np.abs(other).ravel()).pvalue > FALSE_ALARM


def test_uniform_noise_stays_within_its_half_width() -> None:
    noise = drawn("uniform")
    assert half_width(SIGMA) == pytest.approx(0.8660254037844386)
    assert 0.999 < np.abs(noise).max() / half_width(SIGMA) <= 1 + 1e-6


def test_laplace_tail_is_exponential() -> None:
    """P(|e| > t) = exp(-t / b), far out too."""
    noise, scale = np.abs(drawn("laplace")).ravel(), laplace_scale(SIGMA)
    for t in (2.0, 5.0, 8.0):
        beyond = int((noise > t * scale).sum())
        assert stats.binomtest(beyond, noise.size, math.exp(-t)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("name", LAWS)
def test_l1_scope_names_the_idealisation(name: str) -> None:
    noise = NOISES.get(name)().keyed(0.25, Grid(255), 0, 10)
    assert "idealised arithmetic" in noise.scope
    assert "l1 norm" in noise.scope
    assert noise.correction(3072) == 0.0
