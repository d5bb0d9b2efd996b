"""From the logits of L heads to the answers of several base classifiers, all out of one forward pass.

Each rule is a classifier of its own, and a certificate belongs to the rule that was sampled:
`ensemble` (mean of all heads), `head-K`, `prefix-K` (mean of the first K heads), `consensus-K` (the label
that the first K heads agree on, otherwise the ensemble's).
"""

from __future__ import annotations

import torch
from torch import Tensor

from smoothheads.types import ENSEMBLE


def rules(heads: int) -> tuple[str, ...]:
    """The rules of a network with that many heads, in the order of the rows of `decide`."""
    if heads == 1:
        return (ENSEMBLE,)
    partial = range(2, heads)
    return (
        ENSEMBLE,
        *(f"head-{k}" for k in range(1, heads + 1)),
        *(f"prefix-{k}" for k in partial),
        *(f"consensus-{k}" for k in partial),
    )


def ensemble(logits_LNC: Tensor) -> Tensor:
    """Mean over the heads [N, C], in float64."""
    return _prefix_means(logits_LNC)[-1]


def decide(logits_LNC: Tensor) -> Tensor:
    """Classes [R, N] (int64), one row per rule; of equal logits the smallest class wins.

    The logits must be finite: a NaN would count as the largest logit, so the caller looks first.
    """
    heads_LN = logits_LNC.argmax(-1)
    if len(logits_LNC) == 1:
        return heads_LN
    prefixes_LN = _prefix_means(logits_LNC).argmax(-1)
    ensemble_N, partial = prefixes_LN[-1], slice(1, -1)
    agree_LN = (heads_LN == heads_LN[0]).cumprod(0).bool()
    consensus_LN = torch.where(agree_LN, heads_LN[0], ensemble_N)
    return torch.cat([ensemble_N[None], heads_LN, prefixes_LN[partial], consensus_LN[partial]])


def _prefix_means(logits_LNC: Tensor) -> Tensor:
    """Row k is the mean of the first k + 1 heads. In float64, so that neither overflow nor the order in which
    32-bit logits are added decides a vote."""
    sums_LNC = logits_LNC.cumsum(0, dtype=torch.float64)
    counts_L = torch.arange(1, len(logits_LNC) + 1, device=logits_LNC.device)
    return sums_LNC / counts_L[:, None, None]
