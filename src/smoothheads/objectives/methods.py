"""From a method's settings to the method."""

from __future__ import annotations

from torch import Tensor

from smoothheads import config as cfg
from smoothheads.errors import ConfigError
from smoothheads.objectives.acr_targeted import AcrTargeted
from smoothheads.objectives.base import Method
from smoothheads.objectives.catrs import CatRs
from smoothheads.objectives.consistency import Consistency
from smoothheads.objectives.drt import Drt
from smoothheads.objectives.gaussian import Gaussian
from smoothheads.objectives.macer import Macer
from smoothheads.objectives.smoothadv import SmoothAdv
from smoothheads.objectives.smoothmix import SmoothMix
from smoothheads.objectives.stability import Stability


def build_method(config: cfg.Method, *, classes: int, soft_labels: Tensor | None = None) -> Method:
    match config:
        case cfg.Gaussian():
            return Gaussian(config)
        case cfg.Stability():
            return Stability(config)
        case cfg.Consistency():
            return Consistency(config)
        case cfg.SmoothMix():
            return SmoothMix(config)
        case cfg.SmoothAdv():
            return SmoothAdv(config)
        case cfg.Macer():
            _two_classes(config.name, classes)
            return Macer(config)
        case cfg.CatRs():
            return CatRs(config, _checked(soft_labels, classes))
        case cfg.AcrTargeted():
            return AcrTargeted(config)
        case cfg.Drt():
            _two_classes(config.name, classes)
            return Drt(config)


def _two_classes(method: str, classes: int) -> None:
    if classes < 2:
        raise ConfigError(
            f"two classes or more for {method}", str(classes), "it compares the two likeliest classes"
        )


def _checked(soft_labels: Tensor | None, classes: int) -> Tensor:
    if soft_labels is None:
        raise ConfigError(
            "soft labels for cat-rs", "none", "set teacher to the checkpoint of a Gaussian model"
        )
    if soft_labels.ndim != 2 or soft_labels.shape[1] != classes:
        raise ConfigError(
            f"soft labels [training images, {classes}]",
            str(list(soft_labels.shape)),
            "compute them on this data set",
        )
    return soft_labels
