"""Train, certify, compare and ship image classifiers with a proof attached.

The table of contents. A name is imported when it is first used, so that `import smoothheads` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig
    from smoothheads.certify.percentile import percentile_interval
    from smoothheads.checkpoint import load as load_checkpoint
    from smoothheads.checkpoint import save as save_checkpoint
    from smoothheads.cookbook import names as recipes
    from smoothheads.cookbook import recipe
    from smoothheads.data import DataConfig, from_arrays
    from smoothheads.data import as_dataset as dataset
    from smoothheads.data import load as load_data
    from smoothheads.errors import SmoothheadsError
    from smoothheads.models import MultiHead, build, list_architectures
    from smoothheads.models.cut import augment, multihead
    from smoothheads.objectives import ObjectiveConfig
    from smoothheads.report.make import report
    from smoothheads.results.audit import audit
    from smoothheads.results.compare import compare
    from smoothheads.results.read import read_log
    from smoothheads.results.results import Results
    from smoothheads.runs.exported import open_export
    from smoothheads.runs.pretrained import from_pretrained
    from smoothheads.smoothed import Smoothed
    from smoothheads.training import RunConfig, TrainConfig, train
    from smoothheads.types import ABSTAIN, Certificate, Certified

_HOMES = {
    "ABSTAIN": "types:ABSTAIN",
    "Certificate": "types:Certificate",
    "Certified": "types:Certified",
    "CertifyConfig": "certify.config:CertifyConfig",
    "DataConfig": "data:DataConfig",
    "MultiHead": "models:MultiHead",
    "ObjectiveConfig": "objectives:ObjectiveConfig",
    "RunConfig": "training:RunConfig",
    "Smoothed": "smoothed:Smoothed",
    "SmoothheadsError": "errors:SmoothheadsError",
    "TrainConfig": "training:TrainConfig",
    "augment": "models.cut:augment",
    "build": "models:build",
    "audit": "results.audit:audit",
    "compare": "results.compare:compare",
    "dataset": "data:as_dataset",
    "from_arrays": "data:from_arrays",
    "from_pretrained": "runs.pretrained:from_pretrained",
    "list_architectures": "models:list_architectures",
    "load_checkpoint": "checkpoint:load",
    "load_data": "data:load",
    "multihead": "models.cut:multihead",
    "open_export": "runs.exported:open_export",
    "percentile_interval": "certify.percentile:percentile_interval",
    "Results": "results.results:Results",
    "read_log": "results.read:read_log",
    "report": "report.make:report",
    "recipe": "cookbook:recipe",
    "recipes": "cookbook:names",
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
    "Results",
    "RunConfig",
    "Smoothed",
    "SmoothheadsError",
    "TrainConfig",
    "audit",
    "augment",
    "build",
    "compare",
    "dataset",
    "from_arrays",
    "from_pretrained",
    "list_architectures",
    "load_checkpoint",
    "load_data",
    "multihead",
    "open_export",
    "percentile_interval",
    "read_log",
    "recipe",
    "recipes",
    "report",
    "save_checkpoint",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("smoothheads")
    if name not in _HOMES:
        raise AttributeError(f"module 'smoothheads' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"smoothheads.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "__version__"])
