"""One frozen dataclass per stage of the pipeline; a RunConfig is everything a training run was told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from smoothheads.config.check import at_least, between, positive
from smoothheads.config.methods import Drt, Gaussian, Method
from smoothheads.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class SubsetConfig:
    """Which images of a split are used; applied in the order indices, every, first."""

    every: int = 1
    """Keep every k-th image (the field certifies every 20th of CIFAR-10)."""
    first: int | None = None
    """Then keep at most this many."""
    indices: tuple[int, ...] | None = None
    """Explicit positions in the split."""

    def __post_init__(self) -> None:
        at_least("every", self.every, 1)
        if self.first is not None:
            at_least("first", self.first, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    name: Literal["digits", "cifar10", "cifar100", "mnist", "fashion-mnist", "folder", "npz"] = "digits"
    root: str | None = None
    """Folder or archive that holds the data set (digits are built in)."""
    downscale: int = 1
    """Average square groups of this many pixels a side, e.g. 2 makes CIFAR-10 16x16."""
    augment: Literal["auto", "none", "crop-flip"] = "auto"
    """Random crop (padding an eighth of the side) and flip; auto: for CIFAR and folders, not for digits."""
    validation: float = 0.1
    """Share of the training split that is held out to watch training; the test split chooses nothing."""
    subset: SubsetConfig = field(default_factory=SubsetConfig)
    """Which training images are used, before the validation images are cut off."""

    def __post_init__(self) -> None:
        at_least("downscale", self.downscale, 1)
        if not 0 <= self.validation < 1:
            raise ConfigError("0 <= validation < 1", f"{self.validation:g}", "0.1 holds out a tenth")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    arch: str = "resnet8"
    heads: int = 1
    """L: 1 is a single network; SOME uses 5."""
    cut: str = "stage2"
    """Where the shared trunk ends; `input` makes the heads separate networks."""
    normalize: bool = True
    """Subtract the data's mean and divide by its deviation, inside the network, after the noise."""
    normalize_heads: bool = False
    """Each head normalises for itself, as networks do that were trained apart; needs the cut `input`."""

    def __post_init__(self) -> None:
        at_least("heads", self.heads, 1)
        if self.normalize_heads and not (self.normalize and self.cut == "input"):
            raise ConfigError(
                "normalize and cut 'input' with normalize_heads",
                f"normalize {self.normalize} and cut {self.cut!r}",
                "only separate networks can normalise for themselves",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TeachingConfig:
    """Circular teaching: which samples a head calls easy, and which head its weights train."""

    weights: Literal["soft", "hard", "high", "uniform"] = "soft"
    """Hard samples count less (soft) or not (hard), easy samples count less (high), all count (uniform)."""
    shift: Literal["circular", "self", "reverse", "random"] = "circular"
    """Whose judgement trains a head: the previous head's, its own, the next one's, one drawn per step."""
    hard_weight_source: Literal["teacher", "student"] | None = None
    """Whose smoothed loss sets the weight of a hard sample; none: the preset decides."""
    tie: Literal["easy", "zero"] | None = None
    """Weight of a sample whose smoothed loss equals lambda: 1 or 0; none: the preset decides."""
    pace: Literal["log10", "linear", "fixed", "radius", "quantile", "budget"] = "log10"
    """How lambda moves: a schedule (log10, linear, fixed), or without tuning (radius, quantile, budget)."""
    lambda_first: float | None = None
    """Lambda of the first epoch; none: ln(classes)."""
    lambda_last: float = 1.2
    """Lambda of the last epoch under log10 and linear, of every epoch under fixed."""
    radius: float = 0.0
    """Pace radius: the radius, in units of sigma, that an easy sample has at the end; 0 is lambda = ln 2."""
    quantile_first: float = 0.5
    """Pace quantile: share of samples that are easy in the first epoch."""
    quantile_last: float = 0.9
    """Pace quantile: share of samples that are easy in the last epoch."""
    budget: float = 0.7
    """Pace budget: the mean weight of the samples, held throughout."""
    window: int = 1024
    """Paces quantile and budget: how many of a head's last losses count; at most an epoch."""

    def __post_init__(self) -> None:
        positive("lambda_last", self.lambda_last)
        at_least("window", self.window, 2)
        for name in ("quantile_first", "quantile_last", "budget"):
            between(name, getattr(self, name), 0, 1)
        if self.lambda_first is not None:
            positive("lambda_first", self.lambda_first)
        if self.pace == "budget" and self.weights != "soft":
            raise ConfigError(
                "soft weights with pace budget", self.weights, "choose pace quantile, or weights soft"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class DiversityConfig:
    """Cosine constraint that keeps the heads apart."""

    weight: float = 1.0
    """Coefficient of the sum of squared cosines; 0 switches it off."""
    parameters: Literal["all", "weights"] = "all"
    """All head parameters, or only the weight tensors of convolutions and linear layers."""

    def __post_init__(self) -> None:
        at_least("diversity weight", self.weight, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveConfig:
    preset: Literal["paper", "official", "official-2022"] = "paper"
    """Where paper and authors' code differ: the paper, their code, or their code of the published numbers."""
    method: Method = field(default_factory=Gaussian)
    teaching: TeachingConfig = field(default_factory=TeachingConfig)
    diversity: DiversityConfig = field(default_factory=DiversityConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    sigma: float = 0.25
    """Standard deviation of the noise, in pixel units of [0, 1]."""
    epochs: int = 150
    batch: int = 256
    """Size of one optimiser step, in `batch_unit`s."""
    batch_unit: Literal["copies", "images"] = "copies"
    """copies: batch / draws images a step, as the reference codes do; images: batch images."""
    accumulate: int = 1
    """Split a step into this many backward passes to save memory; an image's draws stay together."""
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    nesterov: bool = False
    schedule: Literal["step", "cosine"] = "step"
    step_epochs: int = 50
    step_factor: float = 0.1
    head_lr_scale: float = 1.0
    """Learning rate of the heads relative to the trunk; L undoes the mean over heads."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 autocast where the processor computes it natively."""
    channels_last: bool = True
    device: str = "cpu"
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        positive("lr", self.lr)
        positive("head_lr_scale", self.head_lr_scale)
        at_least("momentum", self.momentum, 0)
        at_least("weight_decay", self.weight_decay, 0)
        for name in ("epochs", "batch", "accumulate", "step_epochs", "threads"):
            at_least(name, getattr(self, name), 1)
        at_least("seed", self.seed, 0)
        if self.nesterov and self.momentum == 0:
            raise ConfigError("momentum > 0 with nesterov", "momentum 0", "set momentum or drop nesterov")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Everything a training run was told; saved beside every artefact."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    init: str | None = None
    """Checkpoint whose weights training starts from, instead of a fresh draw."""
    init_sha256: str | None = None
    """Hash of these weights, noted when the run starts."""

    def __post_init__(self) -> None:
        """Refuses what only the stages together show to be impossible."""
        method = self.objective.method
        if isinstance(method, Drt) and self.model.heads == 1:
            raise ConfigError(
                "two heads or more for drt", "1", "start from a recipe with heads, or raise heads"
            )
        if self.train.batch_unit == "copies" and self.train.batch < method.draws:
            raise ConfigError(
                f"a batch of at least {method.draws} copies, the draws of one image",
                f"{self.train.batch}",
                "raise batch, lower draws, or set batch_unit to images",
            )
