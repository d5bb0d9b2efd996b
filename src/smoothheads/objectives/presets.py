"""Where the paper and its authors' code differ, as one choice: what fields left at none become."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from smoothheads.objectives.config import ObjectiveConfig, TeachingConfig
from smoothheads.objectives.method import Method

Settings = TypeVar("Settings", TeachingConfig, Method)

_OFFICIAL = {"hard_weight_source": "student", "tie": "zero", "mean_gradient": False}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"hard_weight_source": "teacher", "tie": "easy", "mean_gradient": True, "weigh_mix": True},
    "official": _OFFICIAL | {"weigh_mix": True},
    # The code beside the published logs. Its weighting of whole heads is uniform for five heads, as here.
    "official-2022": _OFFICIAL | {"weigh_mix": False, "mask": True},
}


def resolve(config: ObjectiveConfig) -> ObjectiveConfig:
    """The configuration with the preset in its open fields; fields that were set stay as they are."""
    preset = PRESETS[config.preset]
    return replace(config, method=_fill(config.method, preset), teaching=_fill(config.teaching, preset))


def warn_if_unlike(preset: str, heads: int) -> None:
    """The code of 2022 gave 0.2 to the head with the least loss and shared 0.8 among the others."""
    if preset == "official-2022" and heads not in (1, 5):
        warnings.warn(
            f"official-2022 weighed whole heads, which is uniform for 5 of them but not for {heads}; "
            "that weighting is left out",
            stacklevel=3,
        )


def _fill(settings: Settings, preset: Mapping[str, Any]) -> Settings:
    open_fields = {f.name for f in fields(settings) if getattr(settings, f.name) is None}
    return replace(settings, **{name: preset[name] for name in open_fields & preset.keys()})
