"""ResNet-110 on CIFAR-10, the main benchmark, and smaller versions for two processor cores."""

from __future__ import annotations

from smoothheads.data import SubsetConfig, named
from smoothheads.models.config import ModelConfig
from smoothheads.recipes.setups import (
    DRT,
    Published,
    fast_heads,
    joint,
    recipe,
    taught,
    untaught,
    with_method,
)
from smoothheads.training.config import RunConfig, TrainConfig

METHODS = {
    "gaussian": Published("Cohen et al. 2019"),
    "stability": Published(
        "strength: the Consistency and SmoothMix authors' code", {"strength": (2.0, 2.0, 1.0)}
    ),
    "consistency": Published(
        "strength and entropy: Horvath et al., who follow the Consistency authors",
        {"strength": (20.0, 10.0, 10.0)},
    ),
    "smoothmix": Published(
        "SmoothMix authors' code, mix_step as the SOME authors chose it",
        {"step_size": (0.5, 1.0, 2.0), "mix_step": (0, 1, 1)},
    ),
    "smoothadv": Published(
        "attack: Horvath et al.",
        {"draws": (8, 2, 2), "steps": (10, 2, 10), "epsilon": (255 / 256, 2.0, 2.0)},
    ),
    "macer": Published(
        "MACER authors' code, with its own schedule; recalled only, check before relying: strength and defer "
        "at sigma 0.5 and 1",
        {"strength": (12.0, 4.0, 12.0), "defer": (0, 0, 200)},
        train={
            "epochs": 440,
            "step_epochs": 200,
            "lr": 0.01,
            "weight_decay": 5e-4,
            "batch": 64,
            "batch_unit": "images",  # all draws of all images are in one step
        },
    ),
    "cat-rs": Published(
        "CAT-RS authors' code; it needs a teacher, the checkpoint of a Gaussian network of sigma 0.25",
        {"strength": (0.5, 1.0, 2.0)},
    ),
    "acr-targeted": Published(
        "Sun et al. 2025, their scripts",
        {"start": (60, 70, 60), "keep": (0.5, 0.4, 0.4), "step_size": (0.25, 0.25, 0.5), "steps": (3, 6, 4)},
    ),
    "drt": DRT,
}
SOURCE = (
    "Horvath et al. and the SOME authors' code, plain momentum as there; a tenth of the training images is "
    "held out, unlike there (--data.validation 0 trains on all)"
)
# The SOME authors' training commands. Other methods and sigmas have our default.
LAMBDA_LAST = {
    ("gaussian", 0.25): 1.2,
    ("gaussian", 0.5): 0.8,
    ("gaussian", 1.0): 0.8,
    ("consistency", 0.25): 1.0,
    ("consistency", 0.5): 0.8,
    ("consistency", 1.0): 1.0,
    ("smoothmix", 0.25): 1.6,
    ("smoothmix", 0.5): 1.0,
    ("smoothmix", 1.0): 1.6,
}
SOME_SOURCE = (
    "SOME: lambda_last of Gaussian, Consistency and SmoothMix at sigma 0.25, 0.5 and 1 from the authors' "
    "code, otherwise our default; losses as the paper has them (preset paper); at least two draws"
)


@recipe(SOURCE, methods=METHODS)
def cifar10_resnet110(sigma: float = 0.25, method: str = "gaussian", min_draws: int = 1) -> RunConfig:
    """Trains one ResNet-110 on CIFAR-10."""
    config = RunConfig(
        data=named("cifar10"),
        model=ModelConfig(arch="resnet110", cut="stage2"),
        train=TrainConfig(sigma=sigma, epochs=150, batch=256, lr=0.1, step_epochs=50),
    )
    return with_method(config, method, METHODS, min_draws)


@recipe(f"{SOME_SOURCE}; otherwise: {SOURCE}", methods=METHODS)
def cifar10_resnet110_some(sigma: float = 0.25, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains SOME, five heads on a ResNet-110 for CIFAR-10 (the paper's Table 3)."""
    known = (method, sigma) in LAMBDA_LAST
    teaching = {"lambda_last": LAMBDA_LAST[method, sigma]} if known else {}
    return with_method(taught(cifar10_resnet110(sigma), heads, teaching), method, METHODS, min_draws=2)


@recipe(
    "SOME paper, appendix B: schedule with Nesterov momentum, batches of 256 images, no image held out, eq. "
    "3 as printed, eq. 6's mean over heads (over_heads sum: the appendix's sum); lambda_last, which it does "
    "not say: the authors' code",
    methods=METHODS,
)
def cifar10_resnet110_some_paper_text(
    sigma: float = 0.25, method: str = "gaussian", heads: int = 5
) -> RunConfig:
    """Trains SOME by the text of the paper, where that differs from the code behind its numbers."""
    return cifar10_resnet110_some(sigma, method, heads).with_overrides(
        {
            "data.validation": 0.0,
            "objective.diversity.form": "printed",
            "train.nesterov": True,
            "train.batch": 256,
            "train.batch_unit": "images",
        }
    )


@recipe(f"heads: control, as in the SOME paper's Table 7; otherwise: {SOURCE}", methods=METHODS)
def cifar10_resnet110_heads(sigma: float = 0.25, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains five heads without teaching on a ResNet-110 for CIFAR-10 (control for SOME)."""
    return with_method(untaught(cifar10_resnet110(sigma), heads), method, METHODS, min_draws=2)


@recipe(f"ensemble: Horvath et al., here in one run; otherwise: {SOURCE}", methods=METHODS)
def cifar10_resnet110_joint(
    sigma: float = 0.25, method: str = "gaussian", heads: int = 5, min_draws: int = 1
) -> RunConfig:
    """Trains five ResNet-110s on CIFAR-10, in one run (control for SOME; three with method drt)."""
    return joint(with_method(untaught(cifar10_resnet110(sigma), heads), method, METHODS, min_draws))


# The 32x32 study, benchmarks/cifar10: a ResNet-20, 16 epochs on all images but 2,000 that are held out.

RESNET20_SOURCE = "the 32x32 study of this project, benchmarks/cifar10/protocol.md; methods: as on ResNet-110"
RESNET20 = {
    "data.validation": 0.04,
    "model.arch": "resnet20",
    "train.epochs": 16,
    "train.batch": 128,
    "train.schedule": "cosine",
    "train.precision": "float32",
    "train.shards": 2,
}


@recipe(RESNET20_SOURCE, methods=METHODS)
def cifar10_resnet20(sigma: float = 0.25, method: str = "gaussian", min_draws: int = 1) -> RunConfig:
    """Trains one ResNet-20 on CIFAR-10 (--members 5 for five)."""
    return cifar10_resnet110(sigma, method, min_draws).with_overrides(RESNET20)


@recipe(f"{RESNET20_SOURCE}; lambda_last: as on ResNet-110", methods=METHODS)
def cifar10_resnet20_some(sigma: float = 0.25, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains SOME, five heads on a ResNet-20 for CIFAR-10."""
    return fast_heads(cifar10_resnet110_some(sigma, method, heads).with_overrides(RESNET20))


@recipe(f"{RESNET20_SOURCE}; lambda_last: as on ResNet-110", methods=METHODS)
def cifar10_resnet20_some_balanced(
    sigma: float = 0.25, method: str = "gaussian", heads: int = 5
) -> RunConfig:
    """Trains SOME on a ResNet-20 for CIFAR-10, with weights that keep every class."""
    config = cifar10_resnet20_some(sigma, method, heads)
    return config.with_overrides({"objective.teaching.balance": "class"})


@recipe(RESNET20_SOURCE, methods=METHODS)
def cifar10_resnet20_heads(sigma: float = 0.25, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains five heads without teaching on a ResNet-20 for CIFAR-10 (control for SOME)."""
    return fast_heads(cifar10_resnet110_heads(sigma, method, heads).with_overrides(RESNET20))


@recipe(f"{RESNET20_SOURCE}; trained without noise")
def cifar10_resnet20_clean() -> RunConfig:
    """Trains one ResNet-20 on CIFAR-10 without noise: it stands behind a denoiser (`sh.denoised`)."""
    return cifar10_resnet20(sigma=0.0)


# Small: 1,000 images averaged to 16x16, many epochs. Radii do not compare with those of 32x32.

SMALL_SOURCE = "small-scale replication plan of this project (few images, many epochs)"
SMALL_METHODS = {"gaussian": Published(SMALL_SOURCE, {"draws": 2})}


@recipe(SMALL_SOURCE, methods=SMALL_METHODS)
def cifar10_16px_resnet8_single(
    sigma: float = 0.25, method: str = "gaussian", min_draws: int = 1
) -> RunConfig:
    """Trains one ResNet-8 on 1,000 images of CIFAR-10 at 16x16: a minute or two."""
    config = RunConfig(
        data=named("cifar10", downscale=2, subset=SubsetConfig(first=1000), validation=0.0),
        model=ModelConfig(arch="resnet8", cut="stage2"),
        train=TrainConfig(sigma=sigma, epochs=50, batch=64, batch_unit="images", lr=0.1, schedule="cosine"),
    )
    return with_method(config, method, SMALL_METHODS, min_draws)


@recipe(SMALL_SOURCE, methods=SMALL_METHODS)
def cifar10_16px_resnet8_some(sigma: float = 0.25, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains SOME, five heads on a ResNet-8 for CIFAR-10 at 16x16."""
    return with_method(taught(cifar10_16px_resnet8_single(sigma), heads), method, SMALL_METHODS)


# The networks of the figure in the README and of docs/paper.md: like the small ones, but 200 epochs, batches
# of 128 draws, and heads that learn five times as fast, which undoes the mean over heads.

FIGURE_SOURCE = (
    "the main study of this project, benchmarks/paper/main.toml; the README's figure shows sigma 0.25 and 0.5"
)
FIGURE = {
    "data.downscale": 2,
    "data.validation": 0.0,
    "data.subset.first": 1000,
    "model.arch": "resnet8",
    "train.epochs": 200,
    "train.batch": 128,
    "train.schedule": "cosine",
}


@recipe(f"{FIGURE_SOURCE}; methods: as on ResNet-110", methods=METHODS)
def cifar10_16px_figure_single(
    sigma: float = 0.25, method: str = "gaussian", min_draws: int = 1
) -> RunConfig:
    """Trains one network of the README's figure (--members 5 for five): 2 minutes on one core."""
    return cifar10_resnet110(sigma, method, min_draws).with_overrides(FIGURE)


@recipe(f"{FIGURE_SOURCE}; methods and lambda_last: as on ResNet-110", methods=METHODS)
def cifar10_16px_figure_some(sigma: float = 0.25, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains SOME of the README's figure: 6 minutes on one core."""
    return fast_heads(cifar10_resnet110_some(sigma, method, heads).with_overrides(FIGURE))


@recipe(f"{FIGURE_SOURCE}; methods: as on ResNet-110", methods=METHODS)
def cifar10_16px_figure_heads(sigma: float = 0.25, method: str = "gaussian", heads: int = 5) -> RunConfig:
    """Trains five heads without teaching, the control in the study behind the README's figure."""
    return fast_heads(cifar10_resnet110_heads(sigma, method, heads).with_overrides(FIGURE))
