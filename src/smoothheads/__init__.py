"""Train, certify, compare and ship image classifiers that come with a certificate.

A name of the interface is imported when it is first used, so that `import smoothheads` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "ABSTAIN": "types",
    "Certificate": "types",
    "Certified": "types",
    "CertifyConfig": "certify.config",
    "DataConfig": "data",
    "Denoiser": "models.denoiser",
    "MultiHead": "models.multihead",
    "ObjectiveConfig": "objectives",
    "Results": "results.results",
    "RunConfig": "training",
    "Smoothed": "smoothed",
    "SmoothheadsError": "errors",
    "TrainConfig": "training",
    "adapt": "models.adapters",
    "audit": "results.audit",
    "build": "models",
    "certify": "smoothed",
    "compare": "results.compare",
    "dataset": "data",
    "denoised": "models.denoiser",
    "from_arrays": "data",
    "from_pretrained": "runs.models",
    "list_architectures": "models",
    "load_checkpoint": "checkpoint",
    "load_data": "data",
    "multihead": "models.cut",
    "read_log": "results.read",
    "recipe": "recipes",
    "recipes": "recipes",
    "report": "report.html",
    "save_checkpoint": "checkpoint",
    "train": "training.fit",
}
"""Where each name of the interface is defined."""
_ATTRIBUTES = {
    "dataset": "as_dataset",
    "load_checkpoint": "load",
    "load_data": "load",
    "recipe": "get",
    "save_checkpoint": "save",
}
"""What a name is called in its module, where that differs."""

__all__ = [*_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    return module if name == "recipes" else getattr(module, _ATTRIBUTES.get(name, name))


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
