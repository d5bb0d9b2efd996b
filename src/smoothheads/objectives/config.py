"""The settings of the objective: base method, teaching, cosine constraint, and the presets that fill them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from smoothheads.config.check import NotNegative, Positive, Share, at_least, check_fields
from smoothheads.errors import ConfigError
from smoothheads.objectives.gaussian import Gaussian
from smoothheads.objectives.method import Method
from smoothheads.registry import as_component

SCHEDULES = ("log10", "linear", "fixed")  # the paces that depend on the epoch alone


@dataclass(frozen=True, kw_only=True, slots=True)
class TeachingConfig:
    """Circular teaching: which samples a head calls easy, and which head its weights train."""

    weights: Literal["soft", "hard", "high", "uniform", "superloss"] = "soft"
    """Hard samples count less (soft) or not at all (hard), easy samples count less (high), all count alike
    (uniform), or samples count by how their loss compares with their class's (superloss, no lambda)."""
    shift: Literal["circular", "self"] = "circular"
    """Whose judgement trains a head: the previous head's, or its own."""
    hard_weight_source: Literal["teacher", "student"] | None = None
    """Whose smoothed loss sets the weight of a hard sample. If omitted, the preset decides."""
    tie: Literal["easy", "zero"] | None = None
    """Weight of a sample whose smoothed loss equals lambda: 1 or 0. If omitted, the preset decides."""
    balance: Literal["none", "class"] = "none"
    """class: weights are scaled by E[w] / E_c[w], so that every class keeps the same mean weight."""
    pace: Literal["log10", "linear", "fixed", "quantile", "class-quantile", "own-accuracy"] = "log10"
    """How lambda moves: by schedule (log10, linear, fixed), by quantile of the recent losses (quantile), or
    by quantile of each class's losses (class-quantile; own-accuracy sets the quantile itself)."""
    lambda_first: Positive | None = None
    """Lambda of the first epoch. If omitted, ln(classes)."""
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
        if self.weights == "superloss" and self.pace not in SCHEDULES:
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


# Where the paper and its authors' code differ: what fields left at None become.
_OFFICIAL = {"hard_weight_source": "student", "tie": "zero", "mean_gradient": False}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"hard_weight_source": "teacher", "tie": "easy", "mean_gradient": True, "weigh_mix": True},
    "official": _OFFICIAL | {"weigh_mix": True},
    # The code beside the published logs. Its weighting of whole heads is uniform for five heads, as here.
    "official-2022": _OFFICIAL | {"weigh_mix": False, "mask": True},
}

Settings = TypeVar("Settings", TeachingConfig, Method)


def resolve_preset(config: ObjectiveConfig) -> ObjectiveConfig:
    """Returns the configuration with the preset in its open fields; fields that were set stay as they are."""
    preset = PRESETS[config.preset]

    def fill(settings: Settings) -> Settings:
        open_fields = {f.name for f in fields(settings) if getattr(settings, f.name) is None}
        return replace(settings, **{name: preset[name] for name in open_fields & preset.keys()})

    return replace(config, method=fill(config.method), teaching=fill(config.teaching))


def warn_if_unlike(preset: str, heads: int) -> None:
    """Warns where the code of 2022 would differ: it gave 0.2 to the head with the least loss and shared 0.8
    among the others, which is uniform for five heads only."""
    if preset == "official-2022" and heads not in (1, 5):
        warnings.warn(
            f"official-2022 weighed whole heads, which is uniform for 5 of them but not for {heads}; "
            "that weighting is left out",
            stacklevel=3,
        )
