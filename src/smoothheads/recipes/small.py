"""Two-core replication on CIFAR-10: few images averaged to 16x16, many epochs."""

from __future__ import annotations

from smoothheads.config import (
    DataConfig,
    Gaussian,
    ModelConfig,
    ObjectiveConfig,
    RunConfig,
    SubsetConfig,
    TeachingConfig,
    TrainConfig,
)
from smoothheads.recipes.base import Recipe


def cifar10_16px(*, heads: int) -> Recipe:
    """1,000 images; radii do not compare with those of 32x32."""
    return Recipe(
        name=f"cifar10-16px-resnet8-{'some' if heads > 1 else 'single'}-0.25",
        summary=f"{'SOME, 5 heads' if heads > 1 else 'single network'}, ResNet-8 on 16x16, a minute or two",
        source="small-scale replication plan of this project (few images, many epochs)",
        config=RunConfig(
            data=DataConfig(name="cifar10", downscale=2, subset=SubsetConfig(first=1000), validation=0.0),
            model=ModelConfig(arch="resnet8", heads=heads, cut="stage2"),
            objective=ObjectiveConfig(method=Gaussian(draws=2), teaching=TeachingConfig(lambda_last=1.2)),
            train=TrainConfig(
                sigma=0.25, epochs=50, batch=64, batch_unit="images", lr=0.1, schedule="cosine"
            ),
        ),
    )
