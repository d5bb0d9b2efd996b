"""A denoiser for denoised smoothing, which stands in front of a classifier that was trained without noise."""

from __future__ import annotations

from smoothheads.data import named
from smoothheads.models.config import ModelConfig
from smoothheads.objectives import Denoise, ObjectiveConfig
from smoothheads.recipes.setups import recipe
from smoothheads.training.config import RunConfig, TrainConfig


@recipe(
    "chosen here; the network follows FFDNet (Zhang, Zuo and Zhang 2018); benchmarks/make_patches.py makes "
    "the patches of our zoo's denoiser"
)
def denoiser() -> RunConfig:
    """A denoiser for all noise levels, trained on patches of images (--root names their .npz file)."""
    return RunConfig(
        data=named("npz", validation=0.01, augment="none"),
        model=ModelConfig(arch="denoiser", cut="input", normalize=False),
        objective=ObjectiveConfig(method=Denoise(tiles=(32, 0))),
        train=TrainConfig(
            optimizer="adam", lr=1e-3, weight_decay=0.0, batch=32, epochs=14, schedule="cosine"
        ),
    )
