"""The denoiser and its training."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothheads.data import named
from smoothheads.errors import ConfigError
from smoothheads.models.config import ModelConfig
from smoothheads.models.denoiser import Denoiser
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives import Denoise, ObjectiveConfig, Step
from smoothheads.objectives.denoise import cut_tiles
from smoothheads.runs.train import train_run
from smoothheads.training.config import RunConfig, TrainConfig


def small() -> Denoiser:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Denoiser(widths=(8, 8), blocks=(1, 1))


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 7, 10), (3, 9, 9)])
def test_denoiser_keeps_shape_and_range(shape: tuple[int, int, int]) -> None:
    noisy = 3 * torch.randn(2, *shape)
    restored = small().eval()(noisy, 0.5)
    assert restored.shape == noisy.shape
    assert restored.min() >= 0
    assert restored.max() <= 1


def test_denoiser_depends_on_the_noise_level() -> None:
    images = torch.rand(2, 3, 8, 8)
    denoiser = small().eval()
    assert not torch.equal(denoiser(images, 0.1), denoiser(images, 0.5))
    both = denoiser(images, torch.tensor([0.1, 0.5]))
    torch.testing.assert_close(both, torch.stack([denoiser(images, 0.1)[0], denoiser(images, 0.5)[1]]))


def test_denoiser_has_no_inner_cut() -> None:
    with pytest.raises(ConfigError, match="no cut 'stage2'"):
        small().split("stage2")


def test_denoise_loss_of_identity_is_the_noise_power() -> None:
    """A denoiser that predicts no noise has a mean squared error of sigma^2."""
    denoiser = small().train()
    torch.nn.init.zeros_(denoiser.last.weight)
    torch.nn.init.zeros_(denoiser.last.bias)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(1)
    step = Step(
        model=MultiHead(torch.nn.Identity(), [denoiser]),
        images=torch.rand(400, 3, 8, 8),
        labels=torch.zeros(400, dtype=torch.long),
        sigma=0.25,
        generator=generator,
        epoch=1,
    )
    losses = Denoise()(step).per_sample_LN
    sigma = torch.rand(400, generator=torch.Generator().manual_seed(1))
    expected = sigma.square() / (sigma + 0.05)
    assert losses.shape == (1, 400)
    torch.testing.assert_close(losses[0].mean(), expected.mean(), rtol=0.02, atol=0)


def test_denoiser_trains_from_a_run(tmp_path: Path) -> None:
    """On flat patches, the network soon beats the noisy image by several dB."""
    generator = np.random.default_rng(0)
    flat = np.broadcast_to(generator.integers(0, 256, (200, 3, 1, 1), dtype=np.uint8), (200, 3, 16, 16))
    labels = np.arange(200) % 2
    np.savez(
        tmp_path / "patches.npz",
        train_images=flat,
        train_labels=labels,
        test_images=flat,
        test_labels=labels,
    )
    config = RunConfig(
        data=named("npz", root=str(tmp_path / "patches.npz"), validation=0.1),
        model=ModelConfig(arch="denoiser", cut="input", normalize=False),
        objective=ObjectiveConfig(method=Denoise()),
        train=TrainConfig(
            optimizer="adam", lr=1e-3, epochs=6, batch=10, precision="float32", schedule="cosine"
        ),
    )
    train_run(config, tmp_path / "run")
    *_, last = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    psnr = json.loads(last)["validation"]["psnr"]
    noisy = -20 * math.log10(0.5)
    assert psnr["0.5"] > noisy + 6
    assert psnr["0.1"] > psnr["1"]


def test_mosaic_is_denoised_tile_by_tile() -> None:
    """Of two mosaics and one whole patch, the network sees eight tiles and one patch, each with its sigma."""
    seen: list[tuple[tuple[int, ...], int]] = []

    class Watching(torch.nn.Module):
        def forward(self, images: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
            seen.append((tuple(images.shape), len(set(sigma.tolist()))))
            return images

    images = torch.arange(3 * 3 * 8 * 8).reshape(3, 3, 8, 8) / 575
    step = Step(
        model=MultiHead(torch.nn.Identity(), [Watching()]),
        images=images,
        labels=torch.tensor([0, 1, 0]),
        sigma=0.25,
        generator=torch.Generator().manual_seed(0),
        epoch=1,
    )
    losses = Denoise(tiles=(4, 0))(step).per_sample_LN
    assert seen == [((8, 3, 4, 4), 8), ((1, 3, 8, 8), 1)]
    assert losses.shape == (1, 3)
    tiles = cut_tiles(images[:1], 4)
    assert torch.equal(tiles[1], images[0, :, :4, 4:])
    assert torch.equal(tiles[2], images[0, :, 4:, :4])


def test_stability_loss_holds_the_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A classifier that sees brightness alone asks for the brightness back, and for nothing else."""

    class Brightness(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            mean_N = images.mean((1, 2, 3))
            return torch.stack([mean_N, -mean_N], 1)

    class Shift(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = torch.nn.Parameter(torch.tensor(0.2))

        def forward(self, images: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
            return torch.full_like(images, 0.5) + self.shift

    monkeypatch.setattr(
        "smoothheads.objectives.denoise.frozen", lambda name: MultiHead(torch.nn.Identity(), [Brightness()])
    )
    shift = Shift()
    step = Step(
        model=MultiHead(torch.nn.Identity(), [shift]),
        images=torch.full((4, 3, 8, 8), 0.5),
        labels=torch.zeros(4, dtype=torch.long),
        sigma=0.25,
        generator=torch.Generator().manual_seed(0),
        epoch=1,
    )
    clean, moved = (torch.tensor([mean, -mean]).softmax(0) for mean in (0.5, 0.7))
    divergence = float((clean * (clean.log() - moved.log())).sum())
    step.generator.manual_seed(0)
    plain = Denoise()(step).per_sample_LN
    step.generator.manual_seed(0)
    held = Denoise(stability=2.0, classifiers=("own:judge",))(step).per_sample_LN
    torch.testing.assert_close(held - plain, torch.full((1, 4), 2 * divergence))
    held.sum().backward()  # type: ignore[no-untyped-call]
    assert shift.shift.grad is not None
    assert float(shift.shift.grad) > 0


def test_stability_needs_weight_and_classifier() -> None:
    with pytest.raises(ConfigError, match="Set both stability and classifiers"):
        Denoise(stability=1.0)
    with pytest.raises(ConfigError, match="Set both stability and classifiers"):
        Denoise(classifiers=("", "own:judge"))
