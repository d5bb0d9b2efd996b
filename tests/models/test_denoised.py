"""Denoised smoothing: any denoiser in front of any classifier."""

from __future__ import annotations

import math
from dataclasses import replace
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
from smoothheads.models.denoiser import DenoisedInput, Denoiser, DiffusionDenoiser, denoised, describe_parts

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


def test_denoised_keeps_a_part_of_the_noisy_image() -> None:
    """A tenth of it stays behind a denoiser of ours, nothing behind others, and the manifest says so."""
    noisy = torch.linspace(-0.5, 1.5, 48).view(1, 3, 4, 4)
    black = DenoisedInput(lambda images, _: torch.zeros_like(images), 0.25, keep=0.3)
    assert torch.allclose(black(noisy), (0.3 * noisy).clamp(0, 1))
    ours, other = (
        denoised(classifier(), Denoiser(), 0.25),
        denoised(classifier(), lambda images, _: images, 0.25),
    )
    parts = [describe_parts(each)["denoiser"] for each in (ours, other)]
    assert [each.get("keep", 0.0) for each in parts] == [0.1, 0.0]
    # A checkpoint describes the default alone, so that another fraction cannot be saved as if it were that.
    network = sh.build(
        ModelConfig(arch="resnet8"), shape=SHAPE, classes=10, mean=(0.5,) * 3, std=(0.5,) * 3, seed=0
    )
    assert denoised(network, Denoiser(), 0.25).config is not None
    assert denoised(network, Denoiser(), 0.25, keep=0.2).config is None
    with pytest.raises(ConfigError, match="keep is 1; choose a fraction"):
        denoised(classifier(), Denoiser(), 0.25, keep=1.0)


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
    # A clean classifier and its denoiser are saved, and opened again, as one network.
    run = sh.recipe("cifar10-resnet20-clean")
    run = replace(run, model=composed.config)
    info = sh.from_arrays(np.zeros((10, *SHAPE), np.uint8), np.arange(10)).info
    sh.save_checkpoint(tmp_path / "checkpoint", composed, run, info)
    opened = sh.load_checkpoint(tmp_path / "checkpoint")
    assert opened.config.certified_sigma == 0.25
    assert torch.equal(opened.model.eval()(noisy), composed(noisy))


def blur(images: Tensor, sigma: float) -> Tensor:
    del sigma
    return images.mean((2, 3), keepdim=True).clamp(0, 1).expand_as(images)


def loud(images: Tensor, sigma: float) -> Tensor:
    del sigma
    return 9 * images


def test_manifest_has_the_hashes_of_both_networks() -> None:
    """Another denoiser or another classifier is another function, and the manifest says which one it is."""

    def network_facts(classifier_: nn.Module, denoiser: Any) -> dict[str, Any]:
        smoothed = sh.Smoothed(
            denoised(classifier_, denoiser, 0.25), sigma=0.25, n=100, shape=SHAPE, classes=10, seed=0
        )
        results = smoothed.certify(np.zeros((1, *SHAPE), np.uint8), np.zeros(1, int))
        assert results.manifest is not None
        network: dict[str, Any] = results.manifest.network
        return network

    one, ours, two = Denoiser(), network_facts(classifier(), Denoiser()), classifier()
    facts = network_facts(two, one)
    assert facts["denoiser"]["name"] == "Denoiser"
    assert facts["denoiser"]["sha256"] != ours["denoiser"]["sha256"]
    assert facts["classifier"] == ours["classifier"]
    with torch.no_grad():
        next(two.parameters()).add_(1)
    assert network_facts(two, one)["classifier"] != facts["classifier"]
    function = network_facts(two, blur)["denoiser"]
    assert function["name"].endswith(":blur")
    assert len({each["state"] for each in (facts, ours)}) == 2


def test_function_as_denoiser_is_named_in_the_notes() -> None:
    smoothed = sh.Smoothed(denoised(classifier(), blur, 0.25), sigma=0.5, n=100, shape=SHAPE, classes=10)
    notes = " ".join(smoothed.notes)
    assert "blur is called as a black box" in notes
    assert "the denoiser removes noise of sigma 0.25, and certification adds sigma 0.5" in notes


def numpy_classes(samples: np.ndarray[Any, Any]) -> Any:
    return (samples.std((1, 2, 3)) > 0.1).astype(int)


def test_denoiser_before_a_function() -> None:
    """Noise alone looks like contrast to the function, and the denoiser takes it away."""
    image = np.full(SHAPE, 127, np.uint8)
    settings: dict[str, Any] = {"sigma": 0.25, "n": 200, "n0": 20, "seed": 0, "shape": SHAPE, "classes": 2}
    plain = sh.Smoothed(numpy_classes, **settings)
    front = sh.Smoothed(denoised(numpy_classes, blur, 0.25), **settings)
    assert (plain.certify_image(image).prediction, front.certify_image(image).prediction) == (1, 0)
    assert front.engine.fingerprint() != plain.engine.fingerprint()
    facts = front.engine.describe()
    assert facts["name"].endswith("numpy_classes")
    assert facts["denoiser"]["name"].endswith("blur")


def test_deepinv_network_is_clamped() -> None:
    """deepinv's denoisers are called as f(x, sigma) too, and leave [0, 1] a little."""

    def forward(self: nn.Module, images: Tensor, sigma: float) -> Tensor:
        del self, sigma
        return images

    kind = type("Drunet", (nn.Identity,), {"forward": forward, "__module__": "deepinv.models"})
    noisy = torch.randn(2, *SHAPE)
    assert torch.equal(DenoisedInput(kind(), 0.25)(noisy), noisy.clamp(0, 1))


def test_real_diffusers_network() -> None:
    """The variance that the network predicts too is left out, and the time step is that of sigma."""
    diffusers = pytest.importorskip("diffusers")
    unet = diffusers.UNet2DModel(
        sample_size=8, in_channels=3, out_channels=6, block_out_channels=(8,), layers_per_block=1,
        down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",), norm_num_groups=4,
    )  # fmt: skip
    front = DiffusionDenoiser(unet, diffusers.DDPMScheduler())
    noisy = 0.5 + 0.25 * torch.randn(2, *SHAPE)
    with torch.no_grad():
        clean = front(noisy, 0.25)
        t = front.time_step(0.25)
        a = diffusers.DDPMScheduler().alphas_cumprod[t]
        x_t = a.sqrt() * (2 * noisy - 1)
        expected = (x_t - (1 - a).sqrt() * unet(x_t, t).sample[:, :3]) / a.sqrt()
    torch.testing.assert_close(clean, ((expected + 1) / 2).clamp(0, 1))


@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
def test_denoised_network_runs_on_converting_engines(engine: str) -> None:
    pytest.importorskip(engine)
    network = sh.build(
        ModelConfig(arch="resnet8"), shape=SHAPE, classes=10, mean=(0.5,) * 3, std=(0.2,) * 3, seed=0
    )
    composed = denoised(network, Denoiser(), 0.25)
    settings: dict[str, Any] = {"sigma": 0.25, "n": 200, "shape": SHAPE, "classes": 10, "seed": 0}
    votes = [
        sh.Smoothed(composed, engine=each, **settings).certify_image(np.full(SHAPE, 90, np.uint8)).votes
        for each in ("torch", engine)
    ]
    assert np.abs(votes[0].counts - votes[1].counts).max() <= 2


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
    ("model", "shape", "message"),
    [
        (classifier(), (3, 16, 16), "fails on a batch of 100x3x16x16 .*resize them behind the noise"),
        (
            denoised(classifier(), torch.abs, 0.25),
            SHAPE,
            "fails on a batch .*argument",
        ),
        (denoised(classifier(), loud, 0.25), SHAPE, "images lie in"),
        (denoised(numpy_classes, loud, 0.25), SHAPE, "images lie in"),
    ],
)
def test_misfits_are_one_sentence(model: Any, shape: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sh.Smoothed(model, sigma=0.25, n=100, shape=shape, classes=10).certify_image(
            np.zeros(shape, np.uint8)
        )


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
