"""What training minimises: base method, teaching and the cosine constraint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from smoothheads.config.check import NotNegative, Positive, Share, at_least, check_fields
from smoothheads.errors import ConfigError
from smoothheads.objectives.gaussian import Gaussian
from smoothheads.objectives.method import Method
from smoothheads.registry import as_component


@dataclass(frozen=True, kw_only=True, slots=True)
class TeachingConfig:
    """Circular teaching: which samples a head calls easy, and which head its weights train."""

    weights: Literal["soft", "hard", "high", "uniform", "superloss"] = "soft"
    """Hard samples count less (soft) or not at all (hard), easy samples count less (high), all count alike
    (uniform), or samples count by how their loss compares with their class's (superloss, no lambda)."""
    shift: Literal["circular", "self", "reverse", "random"] = "circular"
    """Whose judgement trains a head: the previous head's, its own, the next one's, one drawn per step."""
    hard_weight_source: Literal["teacher", "student"] | None = None
    """Whose smoothed loss sets the weight of a hard sample; None follows the preset."""
    tie: Literal["easy", "zero"] | None = None
    """Weight of a sample whose smoothed loss equals lambda: 1 or 0; None follows the preset."""
    balance: Literal["none", "class"] = "none"
    """class: weights are scaled by E[w] / E_c[w], so that every class keeps the same mean weight."""
    pace: Literal["log10", "linear", "fixed", "quantile", "class-quantile", "own-accuracy"] = "log10"
    """How lambda moves: by schedule (log10, linear, fixed), by quantile of the recent losses (quantile), or
    by quantile of each class's losses (class-quantile; own-accuracy sets the quantile itself)."""
    lambda_first: Positive | None = None
    """Lambda of the first epoch; None means ln(classes)."""
    lambda_last: Positive = 1.2
    """Lambda of the last epoch under log10 and linear, of every epoch under fixed."""
    quantile_first: Share = 0.5
    """Paces quantile and class-quantile: fraction of samples that are easy in the first epoch."""
    quantile_last: Share = 0.9
    """Paces quantile and class-quantile: fraction of samples that are easy in the last epoch. Under quantile,
    lambda never exceeds ln(classes), so the fraction can be smaller."""
    window: int = 1024
    """Pace quantile: how many of a head's last losses count."""
    class_window: int = 128
    """Paces class-quantile and own-accuracy: how many of a head's last losses of each class count."""

    def __post_init__(self) -> None:
        check_fields(self)
        at_least("window", self.window, 2)
        at_least("class_window", self.class_window, 2)
        if self.weights == "superloss" and self.pace not in ("log10", "linear", "fixed"):
            raise ConfigError(
                f"teaching.weights = 'superloss' has no lambda, so teaching.pace = {self.pace!r} has no "
                "effect: leave the pace out, or choose weights = 'soft'."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class DiversityConfig:
    """Cosine constraint that keeps the heads apart."""

    weight: NotNegative = 1.0
    """Coefficient of the sum of squared cosines; 0 switches it off."""
    parameters: Literal["all", "weights"] = "all"
    """All head parameters, or only the weight tensors of convolutions and linear layers."""
    form: Literal["cosine", "printed"] = "cosine"
    """cosine: squared cosines of pairs i < j, as the authors' code has it; printed: eq. 3 as it stands in the
    paper, with one power of each norm and both orders of a pair."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveConfig:
    preset: Literal["paper", "official", "official-2022"] = "paper"
    """Where they differ: the paper, the authors' code, or that code when the published logs were added.
    Whether it made them nobody knows: its training script cannot run with the loss file beside it."""
    method: Method = field(default_factory=Gaussian)
    teaching: TeachingConfig = field(default_factory=TeachingConfig)
    diversity: DiversityConfig = field(default_factory=DiversityConfig)
    over_heads: Literal["mean", "sum"] = "mean"
    """The mean of the heads' losses (the paper's eq. 6), or their sum (its appendix)."""

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "method", as_component(self.method, Method))
