"""Networks: trunk -> L heads -> logits [L, N, C], built by name or made out of any module."""

from typing import TYPE_CHECKING

from smoothheads import lazy

if TYPE_CHECKING:
    from smoothheads.models.aggregate import fit_weights as fit_weights
    from smoothheads.models.architectures import ARCHITECTURES as ARCHITECTURES
    from smoothheads.models.architectures import Architecture as Architecture
    from smoothheads.models.architectures import build as build
    from smoothheads.models.architectures import list_architectures as list_architectures
    from smoothheads.models.config import ModelConfig as ModelConfig
    from smoothheads.models.multihead import MultiHead as MultiHead

__getattr__ = lazy.attributes(
    __name__,
    {
        "aggregate": "fit_weights",
        "architectures": "ARCHITECTURES Architecture build list_architectures",
        "config": "ModelConfig",
        "multihead": "MultiHead",
    },
)
