"""LeNet on MNIST, as the authors of Consistency and SmoothMix use it."""

from __future__ import annotations

from smoothheads.data import named
from smoothheads.models.config import ModelConfig
from smoothheads.recipes.setups import DRT, Published, joint, recipe, taught, untaught, with_method
from smoothheads.training.config import RunConfig, TrainConfig

JEONG = "the Consistency and SmoothMix authors' code"
METHODS = {
    "gaussian": Published("Cohen et al. 2019"),
    "stability": Published(f"strength: {JEONG}"),
    "consistency": Published(f"strength and entropy: {JEONG}", {"strength": (10.0, 5.0, 5.0)}),
    "smoothmix": Published(
        "SmoothMix authors' code, the setting with strength 5 and one step of the adversary",
        {"draws": 4, "steps": (2, 4, 8), "step_size": 1.0, "mix_step": 1},
    ),
    "smoothadv": Published(f"attack: {JEONG}", {"draws": 4}),
    "macer": Published(
        JEONG,
        {"strength": (16.0, 16.0, 6.0), "defer": 30},
        train={"batch_unit": "images"},  # a batch of MACER counts images: all their draws are in one step
    ),
    "cat-rs": Published(
        "CAT-RS authors' code at sigma 0.25; the strength at 0.5 and 1 is chosen here",
        {"strength": 1.0},
        train={"epochs": 150, "step_epochs": 50},
    ),
    "acr-targeted": Published(
        "chosen here: the CIFAR-10 values, since none are published; start scaled to 90 epochs",
        {"start": (36, 42, 36), "keep": (0.5, 0.4, 0.4), "step_size": (0.25, 0.25, 0.5), "steps": (3, 6, 4)},
    ),
    "drt": DRT,
}
SOURCE = (
    "the MNIST experiments in the Consistency authors' code; a tenth of the training images is held out, "
    "unlike there (--data.validation 0 trains on all)"
)
SOME_SOURCE = f"SOME: the paper has no such setting, lambda_last is our default; {SOURCE}"


@recipe(SOURCE, methods=METHODS)
def mnist_lenet(sigma: float = 0.25, method: str = "gaussian", min_draws: int = 1) -> RunConfig:
    """Trains one LeNet on MNIST."""
    config = RunConfig(
        data=named("mnist"),
        model=ModelConfig(arch="lenet", cut="convs", normalize=False),
        train=TrainConfig(sigma=sigma, epochs=90, batch=256, lr=0.01, step_epochs=30),
    )
    return with_method(config, method, METHODS, min_draws)


@recipe(SOME_SOURCE, methods=METHODS)
def mnist_lenet_some(sigma: float = 0.25, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains SOME, five heads on a LeNet for MNIST."""
    return with_method(taught(mnist_lenet(sigma), heads), method, METHODS, min_draws=2)


@recipe(SOURCE, methods=METHODS)
def mnist_lenet_heads(sigma: float = 0.25, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains five heads without teaching on a LeNet for MNIST (control for SOME)."""
    return with_method(untaught(mnist_lenet(sigma), heads), method, METHODS, min_draws=2)


@recipe(SOURCE, methods=METHODS)
def mnist_lenet_joint(
    sigma: float = 0.25, method: str = "gaussian", heads: int = 5, min_draws: int = 1
) -> RunConfig:
    """Trains five LeNets on MNIST, in one run (control for SOME)."""
    return joint(with_method(untaught(mnist_lenet(sigma), heads), method, METHODS, min_draws))
