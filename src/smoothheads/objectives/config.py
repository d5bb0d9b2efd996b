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
    lambda_first: Positive | None = None
    """Lambda of the first epoch; none: ln(classes)."""
    lambda_last: Positive = 1.2
    """Lambda of the last epoch under log10 and linear, of every epoch under fixed."""
    radius: float = 0.0
    """Pace radius: the radius, in units of sigma, that an easy sample has at the end; 0 is lambda = ln 2."""
    quantile_first: Share = 0.5
    """Pace quantile: share of samples that are easy in the first epoch."""
    quantile_last: Share = 0.9
    """Pace quantile: share of samples that are easy in the last epoch, as far as lambda stays below ln C."""
    budget: Share = 0.7
    """Pace budget: the mean weight of the samples, held throughout."""
    window: int = 1024
    """Paces quantile and budget: how many of a head's last losses count; at most an epoch."""

    def __post_init__(self) -> None:
        check_fields(self)
        at_least("window", self.window, 2)
        if self.pace == "budget" and self.weights != "soft":
            raise ConfigError(
                "soft weights with pace budget", self.weights, "choose pace quantile, or weights soft"
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
