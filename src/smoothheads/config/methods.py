"""The base training methods and their parameters: one frozen dataclass each, told apart by `name`.

Defaults are the published values for CIFAR-10 at sigma 0.25. Fields at none follow the objective's preset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from smoothheads.config.check import at_least, positive
from smoothheads.errors import ConfigError

AttackTarget: TypeAlias = Literal["heads", "ensemble"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gaussian:
    """Cohen et al. 2019: cross-entropy on noisy copies."""

    name: ClassVar[str] = "gaussian"
    draws: int = 1
    """Noisy copies of an image in one step (the paper's m)."""

    def __post_init__(self) -> None:
        at_least("draws", self.draws, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stability:
    """Li et al. 2019: cross-entropy on the clean image, and the noisy answer held to the clean one."""

    name: ClassVar[str] = "stability"
    draws: int = 1
    """Noisy copies of an image in one step."""
    strength: float = 2.0
    """Weight of the cross-entropy between the clean and the noisy answer (1 at sigma 1)."""

    def __post_init__(self) -> None:
        at_least("draws", self.draws, 1)
        at_least("strength", self.strength, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Consistency:
    """Jeong and Shin 2020: the answers to the draws of an image are held to their mean."""

    name: ClassVar[str] = "consistency"
    draws: int = 2
    """Noisy copies of an image in one step."""
    form: Literal["default", "kl", "xent", "mse"] = "default"
    """KL to the mean plus entropy (default), no entropy (kl), equal weights (xent), first two draws (mse)."""
    strength: float = 20.0
    """Weight of the consistency term (10 at sigma 0.5 and 1); too much of it collapses the classifier."""
    entropy: float = 0.5
    """Weight of the mean answer's entropy, in the default form."""
    mean_gradient: bool | None = None
    """Whether gradient flows through the mean answer, as in the original; none: the preset decides."""

    def __post_init__(self) -> None:
        at_least("draws", self.draws, 2)
        at_least("strength", self.strength, 0)
        at_least("entropy", self.entropy, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class SmoothMix:
    """Jeong et al. 2021: mixes images with their over-confident adversarial neighbours."""

    name: ClassVar[str] = "smoothmix"
    draws: int = 2
    """Noisy copies of an image in one step."""
    steps: int = 4
    """Steps of the attack."""
    step_size: float = 0.5
    """Length of a step (1 at sigma 0.5, 2 at sigma 1)."""
    max_norm: float | None = None
    """Greatest length of the whole perturbation; none: unbounded."""
    mix_step: int = 0
    """The attack's iterate that serves as the clean image (1 at sigma 0.5 and 1)."""
    strength: float = 5.0
    """Weight of the mixing term."""
    warmup: int = 10
    """Epochs over which the mixing term grows to its weight."""
    target_gradient: bool = True
    """Whether gradient flows through the mixed target."""
    attack_target: AttackTarget = "heads"
    """What the attack raises: the mean of the heads' losses, or the loss of their mean logits."""
    mask: bool | None = None
    """Mix only images whose averaged answer is right; none: the preset decides."""
    weigh_mix: bool | None = None
    """Whether teaching weights apply to the mixing term; none: the preset decides."""

    def __post_init__(self) -> None:
        for name in ("draws", "steps", "warmup"):
            at_least(name, getattr(self, name), 1)
        positive("step_size", self.step_size)
        at_least("strength", self.strength, 0)
        at_least("mix_step", self.mix_step, 0)
        if self.max_norm is not None:
            positive("max_norm", self.max_norm)
        if self.mix_step >= self.steps:
            raise ConfigError(
                "mix_step < steps", f"{self.mix_step} of {self.steps}", "take an iterate before the last"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class SmoothAdv:
    """Salman et al. 2019: adversarial training of the smoothed classifier."""

    name: ClassVar[str] = "smoothadv"
    draws: int = 8
    """Noisy copies of an image in one step; the attack sees all of them."""
    attack: Literal["pgd", "ddn", "gradient-free"] = "pgd"
    """Projected ascent, decoupled direction and norm, or projected ascent without backpropagation."""
    epsilon: float = 255 / 256
    """Greatest length of the perturbation (2 at sigma 0.5 and 1)."""
    steps: int = 10
    """Steps of the attack."""
    warmup: int = 10
    """Epochs over which epsilon grows to its value."""
    train_on: Literal["all", "first"] = "all"
    """Train on all noisy copies of the adversarial image, or only on the first."""
    attack_target: AttackTarget = "heads"
    """What the attack raises: the mean of the heads' losses, or the loss of their mean logits."""
    norm_start: float = 1.0
    """First length of a perturbation under ddn."""
    norm_factor: float = 0.05
    """Share by which ddn lengthens or shortens a perturbation after each step."""

    def __post_init__(self) -> None:
        for name in ("draws", "steps", "warmup"):
            at_least(name, getattr(self, name), 1)
        for name in ("epsilon", "norm_start", "norm_factor"):
            positive(name, getattr(self, name))
        if self.attack == "gradient-free" and self.draws == 1:
            raise ConfigError("draws >= 2 for a gradient-free attack", "1", "it estimates from the draws")


@dataclass(frozen=True, kw_only=True, slots=True)
class Macer:
    """Zhai et al. 2020: raises the certified radius itself. Its batches count images, not copies."""

    name: ClassVar[str] = "macer"
    draws: int = 16
    """Noisy copies of an image in one step."""
    strength: float = 12.0
    """Weight of the radius term."""
    temperature: float = 16.0
    """Inverse temperature of the softmax in the radius (beta)."""
    margin: float = 8.0
    """Radii beyond this, in units of sigma, are left alone (gamma)."""
    defer: int = 0
    """Epochs without the radius term; at sigma 1 the original waits for the learning rate's first drop."""

    def __post_init__(self) -> None:
        at_least("draws", self.draws, 1)
        at_least("strength", self.strength, 0)
        at_least("defer", self.defer, 0)
        positive("temperature", self.temperature)
        positive("margin", self.margin)


@dataclass(frozen=True, kw_only=True, slots=True)
class CatRs:
    """Jeong, Kim and Shin 2023: effort in proportion to the confidence on an image. Needs soft labels."""

    name: ClassVar[str] = "cat-rs"
    draws: int = 4
    """Noisy copies of an image in one step."""
    strength: float = 0.5
    """Weight of the worst-case term (1 at sigma 0.5, 2 at sigma 1)."""
    epsilon: float = 1.0
    """Greatest change of a noise draw by the attack."""
    steps: int = 4
    """Steps of the attack."""
    teacher: str | None = None
    """Folder of the checkpoint whose votes under noise are the soft labels (a Gaussian model)."""
    teacher_sigma: float = 0.25
    """Noise under which it votes."""
    teacher_draws: int = 10_000
    """Votes per training image."""

    def __post_init__(self) -> None:
        for name in ("draws", "steps", "teacher_draws"):
            at_least(name, getattr(self, name), 1)
        at_least("strength", self.strength, 0)
        positive("epsilon", self.epsilon)
        positive("teacher_sigma", self.teacher_sigma)


@dataclass(frozen=True, kw_only=True, slots=True)
class AcrTargeted:
    """Sun et al. 2025: optimises ACR, not robustness. It drops hard images and repeats easy ones."""

    name: ClassVar[str] = "acr-targeted"
    draws: int = 4
    """Noisy copies of an image in one step."""
    start: int = 60
    """Epochs of plain Gaussian training before anything else happens (70 at sigma 0.5)."""
    keep: float = 0.5
    """Then images answered rightly on less than this share of draws are dropped (0.4 at sigma 0.5 and 1)."""
    keep_draws: int = 100
    """Draws by which that is judged."""
    every: int = 10
    """Epochs between two re-weightings of the images."""
    weigh_draws: int = 16
    """Draws by which images are weighted, by a radius that three quarters right have from 14 draws on."""
    step_size: float = 0.25
    """Length of a step of the attack on the noise (0.5 at sigma 1)."""
    steps: int = 3
    """Steps of the attack (6 at sigma 0.5, 4 at sigma 1)."""

    def __post_init__(self) -> None:
        for name in ("draws", "steps", "every", "keep_draws"):
            at_least(name, getattr(self, name), 1)
        at_least("weigh_draws", self.weigh_draws, 14)
        at_least("start", self.start, 0)
        positive("step_size", self.step_size)
        if not 0 <= self.keep <= 1:
            raise ConfigError("0 <= keep <= 1", f"{self.keep:g}", "0.5 keeps what is mostly right")


@dataclass(frozen=True, kw_only=True, slots=True)
class Drt:
    """Yang et al. 2022: heads with opposed input gradients and large margins; needs two heads or more.

    The published weights could not be verified; the defaults are the smallest that we know of.
    """

    name: ClassVar[str] = "drt"
    draws: int = 1
    """Noisy copies of an image in one step."""
    gradient_diversity: float = 0.1
    """Weight of the squared length of the sum of two heads' margin gradients."""
    confidence_margin: float = 0.5
    """Weight of the margin between the two largest probabilities."""

    def __post_init__(self) -> None:
        at_least("draws", self.draws, 1)
        at_least("gradient_diversity", self.gradient_diversity, 0)
        at_least("confidence_margin", self.confidence_margin, 0)


Method: TypeAlias = (
    Gaussian | Stability | Consistency | SmoothMix | SmoothAdv | Macer | CatRs | AcrTargeted | Drt
)

METHODS: Mapping[str, type[Method]] = {method.name: method for method in get_args(Method)}
