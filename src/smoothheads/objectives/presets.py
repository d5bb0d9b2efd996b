"""Where the paper and its authors' code differ, as one choice: what fields left at none become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from smoothheads.config import Method, ObjectiveConfig, TeachingConfig

Settings = TypeVar("Settings", TeachingConfig, Method)

_OFFICIAL = {"hard_weight_source": "student", "tie": "zero", "mean_gradient": False}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"hard_weight_source": "teacher", "tie": "easy", "mean_gradient": True, "weigh_mix": True},
    "official": _OFFICIAL | {"weigh_mix": True},
    # The code of the published numbers. Its weighting of whole heads is uniform for five heads, as here.
    "official-2022": _OFFICIAL | {"weigh_mix": False, "mask": True},
}


def resolve(config: ObjectiveConfig) -> ObjectiveConfig:
    """The configuration with the preset in its open fields; fields that were set stay as they are."""
    preset = PRESETS[config.preset]
    return replace(config, method=_fill(config.method, preset), teaching=_fill(config.teaching, preset))


def _fill(settings: Settings, preset: Mapping[str, Any]) -> Settings:
    open_fields = {f.name for f in fields(settings) if getattr(settings, f.name) is None}
    return replace(settings, **{name: preset[name] for name in open_fields & preset.keys()})
