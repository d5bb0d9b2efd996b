"""The SOME paper's CIFAR-10 settings with the Gaussian base method: ResNet-110, 150 epochs."""

from __future__ import annotations

from smoothheads.config import (
    DataConfig,
    DiversityConfig,
    Gaussian,
    ModelConfig,
    ObjectiveConfig,
    RunConfig,
    SubsetConfig,
    TeachingConfig,
    TrainConfig,
)
from smoothheads.recipes.base import Recipe

SIGMAS = (0.25, 0.5, 1.0)
_LAMBDA_LAST = {0.25: 1.2, 0.5: 0.8, 1.0: 0.8}
_SOURCE = "hyper-parameters published with the SOME authors' code; SGD with plain momentum as there"


def _train(sigma: float) -> TrainConfig:
    return TrainConfig(sigma=sigma, epochs=150, batch=256, lr=0.1, schedule="step", step_epochs=50)


def gaussian_single(sigma: float) -> Recipe:
    return Recipe(
        name=f"cifar10-resnet110-gaussian-{sigma:.2f}",
        summary=f"one ResNet-110, Gaussian noise training, sigma {sigma:g}",
        source=_SOURCE,
        config=RunConfig(
            data=DataConfig(name="cifar10"), model=ModelConfig(arch="resnet110"), train=_train(sigma)
        ),
    )


def gaussian_uniform(sigma: float, *, cut: str = "stage2") -> Recipe:
    """Five heads, or five networks when cut at the input, without teaching and cosine constraint."""
    kind = "dnns" if cut == "input" else "heads"
    return Recipe(
        name=f"cifar10-resnet110-5{kind}-gaussian-{sigma:.2f}",
        summary=f"5 {'networks' if kind == 'dnns' else 'heads'} without teaching, sigma {sigma:g}",
        source=_SOURCE,
        config=RunConfig(
            data=DataConfig(name="cifar10"),
            model=ModelConfig(arch="resnet110", heads=5, cut=cut),
            objective=ObjectiveConfig(
                method=Gaussian(draws=2),
                teaching=TeachingConfig(weights="uniform"),
                diversity=DiversityConfig(weight=0.0),
            ),
            train=_train(sigma),
        ),
    )


def gaussian_some(sigma: float) -> Recipe:
    return Recipe(
        name=f"cifar10-resnet110-some-gaussian-{sigma:.2f}",
        summary=f"SOME: ResNet-110 with 5 heads after stage 2, m = 2, sigma {sigma:g}",
        source=_SOURCE,
        config=RunConfig(
            data=DataConfig(name="cifar10"),
            model=ModelConfig(arch="resnet110", heads=5, cut="stage2"),
            objective=ObjectiveConfig(
                method=Gaussian(draws=2), teaching=TeachingConfig(lambda_last=_LAMBDA_LAST[sigma])
            ),
            train=_train(sigma),
        ),
    )


def small_study(*, heads: int) -> Recipe:
    """Two-core replication: 1,000 images averaged to 16x16, many epochs; radii do not compare with 32x32."""
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
