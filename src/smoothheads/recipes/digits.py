"""The built-in 8x8 digits, which two processor cores train in seconds to minutes."""

from __future__ import annotations

from smoothheads.data import named
from smoothheads.models.config import ModelConfig
from smoothheads.recipes.setups import Published, fast_heads, joint, recipe, taught, untaught, with_method
from smoothheads.training.config import RunConfig, TrainConfig

SOURCE = "chosen for this project on validation images; not from a publication"
METHODS = {"gaussian": Published(SOURCE, {"draws": 2})}


@recipe(SOURCE, methods=METHODS)
def digits_single(sigma: float = 0.5, method: str = "gaussian", min_draws: int = 1) -> RunConfig:
    """Trains one ResNet-8 on 8x8 digits."""
    config = RunConfig(
        data=named("digits"),
        model=ModelConfig(arch="resnet8", cut="stage2"),
        train=TrainConfig(sigma=sigma, epochs=30, batch=128, lr=0.1, schedule="cosine"),
    )
    return with_method(config, method, METHODS, min_draws)


@recipe(SOURCE, methods=METHODS)
def digits_some(sigma: float = 0.5, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains SOME, five heads on a ResNet-8 for 8x8 digits."""
    return fast_heads(with_method(taught(digits_single(sigma), heads), method, METHODS))


@recipe(SOURCE, methods=METHODS)
def digits_heads(sigma: float = 0.5, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains five heads without teaching on a ResNet-8 for 8x8 digits (control for SOME)."""
    return fast_heads(with_method(untaught(digits_single(sigma), heads), method, METHODS))


@recipe(SOURCE, methods=METHODS)
def digits_joint(
    sigma: float = 0.5, method: str = "gaussian", heads: int = 5, min_draws: int = 1
) -> RunConfig:
    """Trains five ResNet-8s on 8x8 digits, in one run (control for SOME)."""
    return joint(with_method(untaught(digits_single(sigma), heads), method, METHODS, min_draws))
