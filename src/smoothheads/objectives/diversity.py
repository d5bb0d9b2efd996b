"""The cosine constraint that keeps the heads from becoming copies of each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def cosines(heads: Sequence[Sequence[Tensor]]) -> Tensor:
    """Cosine of every pair i < j of heads, each head's parameters taken as one long vector."""
    flat_LP = torch.stack([torch.cat([p.flatten() for p in head]) for head in heads])
    unit_LP = F.normalize(flat_LP, dim=1)
    first, second = torch.triu_indices(len(heads), len(heads), offset=1)
    return (unit_LP @ unit_LP.T)[first, second]


def cosine_penalty(heads: Sequence[Sequence[Tensor]]) -> Tensor:
    """Sum over pairs i < j of the squared cosine: zero when the heads are orthogonal.

    The authors' code normalises fully; the formula as printed divides by one power of each norm and would be
    in the tens of thousands for a ResNet-110 at initialisation.
    """
    return cosines(heads).square().sum()
