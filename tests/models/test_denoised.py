"""Denoised smoothing: any denoiser in front of any classifier."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import smoothheads as sh
from smoothheads.errors import ConfigError
from smoothheads.models.config import ModelConfig
from smoothheads.models.denoiser import DenoisedInput, Denoiser, DiffusionDenoiser, denoised

SHAPE = (3, 8, 8)
# The noise schedule of most diffusion networks: beta from 1e-4 to 0.02 in 1,000 steps.
ALPHAS = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64), 0)


def scheduler(prediction: str = "epsilon") -> SimpleNamespace:
    return SimpleNamespace(alphas_cumprod=ALPHAS, config=SimpleNamespace(prediction_type=prediction))


class Oracle(nn.Module):
    """A diffusion network that knows the clean image, and so predicts its noise exactly."""

    def __init__(self, clean: Tensor, prediction: str, extra: bool = False) -> None:
        super().__init__()
        self.clean, self.prediction, self.extra = 2 * clean - 1, prediction, extra

    def forward(self, x_t: Tensor, t: int) -> Any:
        a = ALPHAS[t].float()
        noise = (x_t - a.sqrt() * self.clean) / (1 - a).sqrt()
        predicted = {
            "epsilon": noise,
            "v_prediction": a.sqrt() * noise - (1 - a).sqrt() * self.clean,
            "sample": self.clean.expand_as(x_t),
        }[self.prediction]
        if self.extra:
            predicted = torch.cat([predicted, torch.full_like(predicted, 9.0)], dim=1)
        return SimpleNamespace(sample=predicted)


def classifier(classes: int = 10) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, classes)).eval()


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("extra", [False, True])
def test_diffusion_oracle_restores_the_clean_image(prediction: str, extra: bool) -> None:
    clean = torch.rand(4, *SHAPE)
    noisy = clean + 0.5 * torch.randn(4, *SHAPE)
    front = DiffusionDenoiser(Oracle(clean, prediction, extra), scheduler(prediction))
    torch.testing.assert_close(front(noisy, 0.5), clean, rtol=0, atol=1e-4)


@pytest.mark.parametrize("sigma", [0.1, 0.25, 0.5, 1.0])
def test_diffusion_time_step_has_the_noise_level_of_sigma(sigma: float) -> None:
    """In [-1, 1] the noise has twice the standard deviation: sqrt((1 - a) / a) = 2 sigma."""
    a = float(ALPHAS[DiffusionDenoiser(nn.Identity(), scheduler()).time_step(sigma)])
    assert math.sqrt((1 - a) / a) / 2 == pytest.approx(sigma, rel=0.02)


def test_diffusion_input_has_unit_power_and_no_extra_noise() -> None:
    """x_t = sqrt(a) (2 x - 1): of pure noise its power is a (2 sigma)^2 = 1 - a, as training had it."""
    seen = []

    class Spy(nn.Module):
        def forward(self, x_t: Tensor, t: int) -> Tensor:
            seen.append((x_t, t))
            return torch.zeros_like(x_t)

    front = DiffusionDenoiser(Spy(), scheduler())
    images = 0.5 + 0.25 * torch.randn(50, *SHAPE)
    front(images, 0.25)
    front(images, 0.25)
    (x_t, t), (again, _) = seen
    assert torch.equal(x_t, again)
    assert float(x_t.square().mean()) == pytest.approx(1 - float(ALPHAS[t]), rel=0.05)


def test_diffusion_refuses_unknown_noise_level() -> None:
    with pytest.raises(ConfigError, match=r"knows noise levels from 0\.005 to 78"):
        denoised(classifier(), (nn.Identity(), scheduler()), 1e-3)


def test_diffusion_refuses_scheduler_without_alphas() -> None:
    with pytest.raises(ConfigError, match="has no alphas_cumprod"):
        denoised(classifier(), (nn.Identity(), SimpleNamespace()), 0.25)


def test_diffusion_refuses_unknown_prediction() -> None:
    with pytest.raises(ConfigError, match="predicts 'flow'"):
        DiffusionDenoiser(nn.Identity(), scheduler("flow"))


def test_diffusion_pipeline_is_recognised() -> None:
    clean = torch.rand(1, *SHAPE)
    pipeline = SimpleNamespace(unet=Oracle(clean, "epsilon"), scheduler=scheduler())
    network, plain = denoised(classifier(), pipeline, 0.25), classifier()
    noisy = clean + 0.25 * torch.randn(1, *SHAPE)
    torch.testing.assert_close(network(noisy)[0], plain(clean), rtol=1e-3, atol=1e-3)


def test_denoised_keeps_heads_and_normalisation() -> None:
    config = ModelConfig(arch="resnet8", heads=3)
    network = sh.build(config, shape=SHAPE, classes=10, mean=(0.5,) * 3, std=(0.2,) * 3, seed=0).eval()
    composed = denoised(network, lambda images, sigma: images.clamp(0, 1), 0.25)
    noisy = torch.randn(4, *SHAPE)
    assert torch.equal(composed(noisy), network(noisy.clamp(0, 1)))


def test_denoised_resizes_for_the_classifier() -> None:
    composed = denoised(classifier(), lambda images, sigma: images.clamp(0, 1), 0.25, size=8)
    assert composed(torch.rand(2, 3, 16, 16)).shape == (1, 2, 10)


def test_denoised_is_certified_like_any_network() -> None:
    """The denoiser knows the image: every sample has the clean prediction, and the radius is the largest."""
    clean = torch.tensor(np.arange(3 * 64).reshape(SHAPE) / 255, dtype=torch.float32)
    composed = denoised(classifier(), lambda images, sigma: clean.expand_as(images), 0.5)
    smoothed = sh.Smoothed(composed, sigma=0.5, n=1000, shape=SHAPE, classes=10, seed=1)
    found = smoothed.certify_image((clean * 255).round().numpy().astype(np.uint8))
    assert found.prediction == int(classifier()(clean[None]).argmax())
    assert found.radius == pytest.approx(smoothed.certifier.max_radius, abs=1e-5)


def test_denoised_checkpoint_round_trip(tmp_path: Path) -> None:
    config = ModelConfig(arch="resnet8", heads=2)
    network = sh.build(config, shape=SHAPE, classes=10, mean=(0.5,) * 3, std=(0.2,) * 3, seed=0)
    composed = denoised(network, Denoiser(), 0.25)
    assert composed.config == ModelConfig(arch="resnet8", heads=2, denoiser_sigma=0.25)
    again = sh.build(composed.config, shape=SHAPE, classes=10, mean=(0.0,) * 3, std=(1.0,) * 3, seed=5).eval()
    again.load_state_dict(composed.state_dict())
    noisy = torch.randn(4, *SHAPE)
    assert torch.equal(again(noisy), composed(noisy))


@pytest.mark.parametrize(
    ("denoiser", "message"),
    [
        (lambda images, sigma: images[:, :1], r"returned \(2, 1, 8, 8\) for images of shape \(2, 3, 8, 8\)"),
        (lambda images, sigma: None, "returned NoneType"),
        (lambda images, sigma: images + 9, r"but images lie in \[0, 1\]: clamp its output"),
        (lambda images, sigma: images * math.nan, "returned values from nan to nan"),
    ],
)
def test_denoised_refuses_bad_output(denoiser: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DenoisedInput(denoiser, 0.25)(torch.rand(2, *SHAPE))


@pytest.mark.parametrize(
    ("denoiser", "sigma", "message"),
    [
        ("ffdnet", 0.25, "must be a function of images and sigma, not str"),
        (Denoiser(), 1.5, "knows noise levels up to 1, not 1.5"),
        (Denoiser(), 0.0, "needs a positive noise level"),
    ],
)
def test_denoised_refuses_bad_settings(denoiser: Any, sigma: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        denoised(classifier(), denoiser, sigma)
