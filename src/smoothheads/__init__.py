"""Train, certify, compare and ship image classifiers that come with a certificate.

A name of the interface is imported when it is first used, so that `import smoothheads` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
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
    "dataset": "data:as_dataset",
    "denoised": "models.denoiser",
    "from_arrays": "data",
    "from_pretrained": "runs.models",
    "list_architectures": "models",
    "load_checkpoint": "checkpoint:load",
    "load_data": "data:load",
    "multihead": "models.cut",
    "read_log": "results.read",
    "recipe": "recipes:get",
    "recipes": "recipes",
    "report": "report.html",
    "save_checkpoint": "checkpoint:save",
    "train": "training.fit",
}
"""The module of each name, and what the name is called there, where that differs."""

__all__ = [*_PLACES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place, _, attribute = _PLACES[name].partition(":")
    module = importlib.import_module(f"{__name__}.{place}")
    return module if name == "recipes" else getattr(module, attribute or name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
