"""Small settings on the embedded 8x8 digits: seconds to minutes on two cores."""

from __future__ import annotations

from smoothheads.config import (
    DataConfig,
    Gaussian,
    ModelConfig,
    ObjectiveConfig,
    RunConfig,
    TeachingConfig,
    TrainConfig,
)
from smoothheads.recipes.base import Recipe

_SOURCE = "chosen for this project on validation images; not from a publication"


def digits(*, heads: int, sigma: float = 0.5) -> Recipe:
    """A 5-head SOME network, or its single-network control trained with the same number of noise draws."""
    return Recipe(
        name="digits-some" if heads > 1 else "digits-single",
        summary=f"{'SOME, 5 heads' if heads > 1 else 'single network'} on 8x8 digits, sigma {sigma:g}",
        source=_SOURCE,
        config=RunConfig(
            data=DataConfig(name="digits"),
            model=ModelConfig(arch="resnet8", heads=heads, cut="stage2"),
            objective=ObjectiveConfig(method=Gaussian(draws=2), teaching=TeachingConfig(lambda_last=1.2)),
            # The mean over heads divides each head's gradient by their number; the scale gives it back.
            train=TrainConfig(
                sigma=sigma, epochs=30, batch=128, lr=0.1, schedule="cosine", head_lr_scale=float(heads)
            ),
        ),
    )
