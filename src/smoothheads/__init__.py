"""Train, certify, compare and ship image classifiers with a proof attached.

The table of contents. A name is imported when it is first used, so that `import smoothheads` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smoothheads import lazy

if TYPE_CHECKING:
    from smoothheads import checkpoint, cookbook, data
    from smoothheads.certify.config import CertifyConfig as CertifyConfig
    from smoothheads.certify.percentile import percentile_interval as percentile_interval
    from smoothheads.cookbook import recipe as recipe
    from smoothheads.data import DataConfig as DataConfig
    from smoothheads.data import from_arrays as from_arrays
    from smoothheads.errors import SmoothheadsError as SmoothheadsError
    from smoothheads.models import build as build
    from smoothheads.models import list_architectures as list_architectures
    from smoothheads.models.cut import multihead as multihead
    from smoothheads.models.denoiser import Denoiser as Denoiser
    from smoothheads.models.denoiser import denoised as denoised
    from smoothheads.models.multihead import MultiHead as MultiHead
    from smoothheads.objectives import ObjectiveConfig as ObjectiveConfig
    from smoothheads.report.html import report as report
    from smoothheads.results.audit import audit as audit
    from smoothheads.results.compare import compare as compare
    from smoothheads.results.read import read_log as read_log
    from smoothheads.results.results import Results as Results
    from smoothheads.runs.models import from_pretrained as from_pretrained
    from smoothheads.smoothed import Smoothed as Smoothed
    from smoothheads.training import RunConfig as RunConfig
    from smoothheads.training import TrainConfig as TrainConfig
    from smoothheads.training.fit import train as train
    from smoothheads.types import ABSTAIN as ABSTAIN
    from smoothheads.types import Certificate as Certificate
    from smoothheads.types import Certified as Certified

    load_checkpoint, save_checkpoint = checkpoint.load, checkpoint.save
    dataset, load_data, recipes = data.as_dataset, data.load, cookbook.names

_HOMES = {
    "certify.config": "CertifyConfig",
    "certify.percentile": "percentile_interval",
    "checkpoint": "load_checkpoint=load save_checkpoint=save",
    "cookbook": "recipe recipes=names",
    "data": "DataConfig dataset=as_dataset from_arrays load_data=load",
    "errors": "SmoothheadsError",
    "models": "build list_architectures",
    "models.cut": "multihead",
    "models.denoiser": "Denoiser denoised",
    "models.multihead": "MultiHead",
    "objectives": "ObjectiveConfig",
    "report.html": "report",
    "results.audit": "audit",
    "results.compare": "compare",
    "results.read": "read_log",
    "results.results": "Results",
    "runs.models": "from_pretrained",
    "smoothed": "Smoothed",
    "training": "RunConfig TrainConfig",
    "training.fit": "train",
    "types": "ABSTAIN Certificate Certified",
}
_get = lazy.attributes(__name__, _HOMES)
__all__ = [name.partition("=")[0] for names in _HOMES.values() for name in names.split()]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("smoothheads")
    return _get(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
