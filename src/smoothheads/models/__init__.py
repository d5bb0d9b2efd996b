"""Networks: trunk -> L heads -> logits [L, N, C], built by name or made out of any module."""

from smoothheads.models.aggregate import decide, ensemble, fit_weights, rules
from smoothheads.models.augment import augment
from smoothheads.models.cost import Cost, cost
from smoothheads.models.grouped import GroupedMultiHead, faster_heads, group, ungroup
from smoothheads.models.multihead import MultiHead
from smoothheads.models.normalize import Normalize
from smoothheads.models.registry import ARCHITECTURES, DEFAULT_CUTS, build

__all__ = [
    "ARCHITECTURES",
    "DEFAULT_CUTS",
    "Cost",
    "GroupedMultiHead",
    "MultiHead",
    "Normalize",
    "augment",
    "build",
    "cost",
    "decide",
    "ensemble",
    "faster_heads",
    "fit_weights",
    "group",
    "rules",
    "ungroup",
]
