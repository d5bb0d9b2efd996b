"""The field's three benchmarks (LeNet on MNIST, ResNet-110 on CIFAR-10, ResNet-50 on ImageNet) and two small
ones of our own, which two processor cores can train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from smoothheads.cookbook.base import Benchmark
from smoothheads.data import SubsetConfig, named
from smoothheads.models.config import ModelConfig
from smoothheads.objectives.config import ObjectiveConfig
from smoothheads.objectives.gaussian import Gaussian
from smoothheads.training.config import RunConfig, TrainConfig

HELD_OUT = "a tenth of the training images is held out, unlike there (--data.validation 0 trains on all)"
SINGLE = ("gaussian", "stability", "consistency", "smoothmix", "smoothadv", "macer", "cat-rs", "acr-targeted")
PAPER = ("gaussian", "consistency", "smoothmix")


def digits() -> Benchmark:
    """The embedded 8x8 digits: seconds to minutes."""
    return Benchmark(
        name="digits",
        network="ResNet-8 on 8x8 digits",
        run=RunConfig(
            data=named("digits"),
            model=ModelConfig(arch="resnet8", cut="stage2"),
            objective=ObjectiveConfig(method=Gaussian(draws=2)),
            train=TrainConfig(sigma=0.5, epochs=30, batch=128, lr=0.1, schedule="cosine"),
        ),
        source="chosen for this project on validation images; not from a publication",
        two_draws=False,
        undo_mean=True,
    )


def cifar10_16px() -> Benchmark:
    """1,000 images of CIFAR-10 averaged to 16x16, many epochs; radii do not compare with those of 32x32."""
    return Benchmark(
        name="cifar10-16px-resnet8",
        network="ResNet-8 on 16x16, a minute or two",
        run=RunConfig(
            data=named("cifar10", downscale=2, subset=SubsetConfig(first=1000), validation=0.0),
            model=ModelConfig(arch="resnet8", cut="stage2"),
            objective=ObjectiveConfig(method=Gaussian(draws=2)),
            train=TrainConfig(epochs=50, batch=64, batch_unit="images", lr=0.1, schedule="cosine"),
        ),
        source="small-scale replication plan of this project (few images, many epochs)",
        two_draws=False,
    )


def mnist() -> Benchmark:
    return Benchmark(
        name="mnist-lenet",
        network="LeNet",
        run=RunConfig(
            data=named("mnist"),
            model=ModelConfig(arch="lenet", cut="convs", normalize=False),
            train=TrainConfig(epochs=90, batch=256, lr=0.01, step_epochs=30),
        ),
        source=f"the MNIST experiments in the Consistency authors' code; {HELD_OUT}",
        published={"single": SINGLE},
    )


def cifar10() -> Benchmark:
    return Benchmark(
        name="cifar10-resnet110",
        network="ResNet-110",
        run=RunConfig(
            data=named("cifar10"),
            model=ModelConfig(arch="resnet110", cut="stage2"),
            train=TrainConfig(epochs=150, batch=256, lr=0.1, step_epochs=50),
        ),
        source=f"Horvath et al. and the SOME authors' code, plain momentum as there; {HELD_OUT}",
        published={
            "single": SINGLE,
            "some": PAPER,
            "some-letter": PAPER,
            "dnn5": PAPER,
            "5heads": PAPER,
            "some-5dnns": ("gaussian",),
            "3dnns": ("drt",),
        },
    )


def imagenet() -> Benchmark:
    """Set the root to a folder of class folders: `train/CLASS/...` and `val/CLASS/...`."""
    return Benchmark(
        name="imagenet-resnet50",
        network="ResNet-50",
        heads=3,
        run=RunConfig(
            data=named("folder", size=224),
            model=ModelConfig(arch="resnet50", cut="layer3"),
            train=TrainConfig(epochs=90, batch=256, lr=0.1, step_epochs=30),
        ),
        source=f"Horvath et al.; {HELD_OUT}",
        published={
            "single": tuple(name for name in SINGLE if name not in ("stability", "smoothmix")),
            "some": ("gaussian", "consistency"),
            "dnn3": ("gaussian", "consistency"),
        },
    )


BENCHMARKS: dict[str, Callable[[], Benchmark]] = {
    "digits": digits,
    "cifar10-16px-resnet8": cifar10_16px,
    "mnist-lenet": mnist,
    "cifar10-resnet110": cifar10,
    "imagenet-resnet50": imagenet,
}


def benchmark(name: str, sigma: float | None) -> Benchmark:
    """At a sigma, or at its own: 0.5 for the digits, else 0.25."""
    bench = BENCHMARKS[name]()
    if sigma is None:
        return bench
    return replace(bench, run=replace(bench.run, train=replace(bench.run.train, sigma=sigma)))
