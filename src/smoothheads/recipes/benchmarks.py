"""The field's three benchmarks: LeNet on MNIST, ResNet-110 on CIFAR-10, ResNet-50 on ImageNet."""

from __future__ import annotations

from smoothheads.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from smoothheads.recipes.base import Benchmark

HELD_OUT = "a tenth of the training images is held out, unlike there (--data.validation 0 trains on all)"


def mnist(sigma: float) -> Benchmark:
    return Benchmark(
        data="mnist",
        arch="lenet",
        network="LeNet",
        heads=5,
        cut="convs",
        run=RunConfig(
            data=DataConfig(name="mnist"),
            model=ModelConfig(arch="lenet", cut="convs", normalize=False),
            train=TrainConfig(sigma=sigma, epochs=90, batch=256, lr=0.01, step_epochs=30),
        ),
        source=f"the MNIST experiments in the Consistency authors' code; {HELD_OUT}",
    )


def cifar10(sigma: float) -> Benchmark:
    return Benchmark(
        data="cifar10",
        arch="resnet110",
        network="ResNet-110",
        heads=5,
        cut="stage2",
        run=RunConfig(
            data=DataConfig(name="cifar10"),
            model=ModelConfig(arch="resnet110", cut="stage2"),
            train=TrainConfig(sigma=sigma, epochs=150, batch=256, lr=0.1, step_epochs=50),
        ),
        source=f"Horvath et al. and the SOME authors' code, plain momentum as there; {HELD_OUT}",
    )


def imagenet(sigma: float) -> Benchmark:
    """Set the root to a folder of class folders: `train/CLASS/...` and `val/CLASS/...`."""
    return Benchmark(
        data="imagenet",
        arch="resnet50",
        network="ResNet-50",
        heads=3,
        cut="layer3",
        run=RunConfig(
            data=DataConfig(name="folder"),
            model=ModelConfig(arch="resnet50", cut="layer3"),
            train=TrainConfig(sigma=sigma, epochs=90, batch=256, lr=0.1, step_epochs=30),
        ),
        source=f"Horvath et al.; {HELD_OUT}",
    )


ALL = (mnist, cifar10, imagenet)
