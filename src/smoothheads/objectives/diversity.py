"""The cosine constraint that keeps the heads from becoming copies of each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def cosines(heads: Sequence[Sequence[Tensor]]) -> Tensor:
    """Returns the cosine of every pair i < j of heads, each head's parameters taken as one long vector."""
    flat_LP = torch.stack([torch.cat([p.flatten() for p in head]) for head in heads])
    unit_LP = F.normalize(flat_LP, dim=1)
    first, second = torch.triu_indices(len(heads), len(heads), offset=1)
    return (unit_LP @ unit_LP.T)[first, second]


def cosine_penalty(heads: Sequence[Sequence[Tensor]]) -> Tensor:
    """Returns the sum over pairs i < j of the squared cosine: zero when the heads are orthogonal.

    This is eq. 3 of the SOME paper as its authors' code has it; `printed_penalty` is the printed formula.
    """
    return cosines(heads).square().sum()


def printed_penalty(heads: Sequence[Sequence[Tensor]]) -> Tensor:
    """Returns eq. 3 as printed: the sum over ordered pairs of <h_i, h_j>^2 / (|h_i| |h_j|).

    It is in the tens of thousands for a ResNet-110 at initialisation.
    """
    flat_LP = torch.stack([torch.cat([p.flatten() for p in head]) for head in heads])
    norms_L = flat_LP.norm(dim=1).clamp_min(1e-12)
    squared_LL = (flat_LP @ flat_LP.T).square() / (norms_L[:, None] * norms_L[None, :])
    both: Tensor = squared_LL.sum() - squared_LL.diagonal().sum()
    return both
