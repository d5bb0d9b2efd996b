"""Settings on MNIST and ImageNet with the Gaussian base method."""

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


def mnist_gaussian(sigma: float) -> Recipe:
    return Recipe(
        name=f"mnist-lenet-gaussian-{sigma:.2f}",
        summary=f"LeNet on MNIST, sigma {sigma:g}",
        source="settings of the Consistency authors' MNIST experiments",
        config=RunConfig(
            data=DataConfig(name="mnist"),
            model=ModelConfig(arch="lenet", cut="convs", normalize=False),
            train=TrainConfig(sigma=sigma, epochs=90, batch=256, lr=0.01, step_epochs=30),
        ),
    )


def imagenet_gaussian(sigma: float) -> Recipe:
    return Recipe(
        name=f"imagenet-resnet50-gaussian-{sigma:.2f}",
        summary=f"one ResNet-50, sigma {sigma:g}",
        source="settings of Horvath et al. for ImageNet",
        config=RunConfig(
            data=DataConfig(name="folder"),
            model=ModelConfig(arch="resnet50", cut="layer3"),
            train=TrainConfig(sigma=sigma, epochs=90, batch=256, lr=0.1, step_epochs=30),
        ),
    )


def imagenet_some() -> Recipe:
    return Recipe(
        name="imagenet-resnet50-some-gaussian-1.00",
        summary="SOME: ResNet-50 with 3 heads after layer3, m = 2, sigma 1",
        source="SOME paper; optimiser settings of Horvath et al.; the paper fixes lambda at a value it "
        "does not report, 1.0 here is a guess",
        config=RunConfig(
            data=DataConfig(name="folder"),
            model=ModelConfig(arch="resnet50", heads=3, cut="layer3"),
            objective=ObjectiveConfig(
                method=Gaussian(draws=2), teaching=TeachingConfig(pace="fixed", lambda_last=1.0)
            ),
            train=TrainConfig(sigma=1.0, epochs=90, batch=256, lr=0.1, step_epochs=30),
        ),
    )
