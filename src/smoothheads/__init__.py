"""Train, certify, compare and ship image classifiers with a proof attached.

The table of contents. A name is imported when it is first used, so that `import smoothheads` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothheads.certify.percentile import percentile_interval
    from smoothheads.certify.smoothed import Certified, Smoothed
    from smoothheads.checkpoint import load as load_checkpoint
    from smoothheads.checkpoint import save as save_checkpoint
    from smoothheads.config import CertifyConfig, DataConfig, ObjectiveConfig, RunConfig, TrainConfig
    from smoothheads.data import from_arrays
    from smoothheads.data import load as load_data
    from smoothheads.errors import SmoothheadsError
    from smoothheads.models import MultiHead, augment, build
    from smoothheads.results.cohen import read_log
    from smoothheads.results.compare import compare
    from smoothheads.runs.exported import open_export
    from smoothheads.training import train
    from smoothheads.types import ABSTAIN, Certificate

_HOMES = {
    "ABSTAIN": "types:ABSTAIN",
    "Certificate": "types:Certificate",
    "Certified": "certify.smoothed:Certified",
    "CertifyConfig": "config:CertifyConfig",
    "DataConfig": "config:DataConfig",
    "MultiHead": "models:MultiHead",
    "ObjectiveConfig": "config:ObjectiveConfig",
    "RunConfig": "config:RunConfig",
    "Smoothed": "certify.smoothed:Smoothed",
    "SmoothheadsError": "errors:SmoothheadsError",
    "TrainConfig": "config:TrainConfig",
    "augment": "models:augment",
    "build": "models:build",
    "compare": "results.compare:compare",
    "from_arrays": "data:from_arrays",
    "load_checkpoint": "checkpoint:load",
    "load_data": "data:load",
    "open_export": "runs.exported:open_export",
    "percentile_interval": "certify.percentile:percentile_interval",
    "read_log": "results.cohen:read_log",
    "save_checkpoint": "checkpoint:save",
    "train": "training:train",
}

__all__ = [
    "ABSTAIN",
    "Certificate",
    "Certified",
    "CertifyConfig",
    "DataConfig",
    "MultiHead",
    "ObjectiveConfig",
    "RunConfig",
    "Smoothed",
    "SmoothheadsError",
    "TrainConfig",
    "augment",
    "build",
    "compare",
    "from_arrays",
    "load_checkpoint",
    "load_data",
    "open_export",
    "percentile_interval",
    "read_log",
    "save_checkpoint",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'smoothheads' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"smoothheads.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
