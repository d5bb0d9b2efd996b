"""Linear networks, whose margins under noise are normal with known mean and deviation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from smoothheads.checkpoint import Checkpoint
from smoothheads.data import ArrayDataset, DataInfo, from_arrays
from smoothheads.data.splits import hold_out
from smoothheads.errors import ConfigError, DataError, SoundnessError
from smoothheads.models.multihead import MultiHead
from smoothheads.runs.diversity import margins, measure
from smoothheads.runs.sampling import Sampling
from smoothheads.training import RunConfig

SIGMA, DRAWS = 0.5, 10_000


@pytest.fixture(scope="module")
def images() -> ArrayDataset:
    pixels = np.full((3, 1, 2, 2), 128, dtype=np.uint8)
    return from_arrays(pixels, np.array([0, 1, 0]), classes=2, mean=(0.5,), std=(0.5,))


def linear(weights: list[float], bias: float = 0.0) -> nn.Module:
    """Logits (w . (x - grey) + bias, 0)."""
    layer = nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([weights, [0.0] * 4]))
        layer.bias.copy_(torch.tensor([bias - sum(weights) * 128 / 255, 0.0]))
    return nn.Sequential(nn.Flatten(), layer)


def ready(info: DataInfo, *heads: nn.Module) -> Checkpoint:
    return Checkpoint(MultiHead(nn.Identity(), heads), RunConfig(), info, "", {})


def test_margins_of_linear_heads_are_normal(images: ArrayDataset) -> None:
    network = ready(images.info, linear([3, 0, 0, 0], 1.0), linear([0, 4, 0, 0], 1.0))
    found = margins(network, images, 0, Sampling(sigma=SIGMA, index_samples=DRAWS)).to_dict()
    assert found["samples"] == DRAWS
    for name, length in (("head-1", 3.0), ("head-2", 4.0), ("ensemble", 2.5)):
        curve, deviation = found["curves"][name], SIGMA * length
        assert curve["mean"] == pytest.approx(1.0, abs=5 * deviation / DRAWS**0.5)
        assert curve["std"] == pytest.approx(deviation, rel=5 / (2 * DRAWS) ** 0.5)
        assert curve["correct"] == pytest.approx(stats.norm.cdf(1 / deviation), abs=5 * 0.5 / DRAWS**0.5)


def test_heads_that_look_at_different_pixels_are_independent(images: ArrayDataset) -> None:
    sampling = Sampling(sigma=SIGMA, samples=2000)
    spread = measure(ready(images.info, linear([3, 0, 0, 0]), linear([0, 3, 0, 0])), images, sampling)
    noise = 5 / 6000**0.5
    assert spread.disagreement == pytest.approx(0.5, abs=noise)
    assert spread.error_correlation == pytest.approx(0, abs=2 * noise)
    assert spread.variance_ratio == pytest.approx(0.5, abs=2 * noise)


def test_equal_and_opposed_heads(images: ArrayDataset) -> None:
    sampling = Sampling(sigma=SIGMA, samples=50)
    same = measure(ready(images.info, linear([3, 1, 0, 0]), linear([3, 1, 0, 0])), images, sampling)
    assert same.disagreement == 0
    assert same.error_correlation == pytest.approx(1)
    assert same.variance_ratio == pytest.approx(1)
    opposed = measure(ready(images.info, linear([3, 1, 0, 0]), linear([-3, -1, 0, 0])), images, sampling)
    assert opposed.error_correlation == pytest.approx(-1)
    assert opposed.variance_ratio == pytest.approx(0, abs=1e-9)


def test_an_image_has_the_same_noise_whatever_else_is_measured(images: ArrayDataset) -> None:
    network = ready(images.info, linear([3, 0, 1, 0]), linear([0, 3, 0, 2]))
    sampling = Sampling(sigma=SIGMA, index_samples=250, block=100)
    seen: list[int] = []
    alone = margins(network, images, 2, sampling, seen.append)
    measure(network, images, sampling)
    assert margins(network, images, 2, sampling).to_dict() == alone.to_dict()
    assert sum(seen) == 250
    assert margins(network, images, 1, sampling).to_dict() != alone.to_dict()


def test_what_is_not_finite_or_not_a_function_is_refused(images: ArrayDataset) -> None:
    with pytest.raises(SoundnessError, match="noisy samples of image 1 have NaN"):
        margins(ready(images.info, linear([float("nan")] * 4)), images, 1, Sampling(sigma=SIGMA))

    class Restless(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.rand(len(x), 2)

    with pytest.raises(SoundnessError, match="different logits on a second pass"):
        measure(ready(images.info, Restless()), images, Sampling(sigma=SIGMA))


def test_settings_out_of_range_and_no_images(images: ArrayDataset) -> None:
    for wrong in ({"sigma": 0.0}, {"index_samples": 0}, {"samples": 0}, {"block": 0}):
        with pytest.raises(ConfigError):
            Sampling(**{"sigma": 0.5} | wrong)
    _, nothing = hold_out(images, 0.0)
    with pytest.raises(DataError, match="The subset has no images"):
        measure(ready(nothing.info, linear([0] * 4)), nothing, Sampling(sigma=SIGMA))
