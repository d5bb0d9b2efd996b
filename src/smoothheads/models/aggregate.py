"""Turns the logits of L heads into the classes of several base classifiers, all from one forward pass.

Each aggregation is a classifier of its own, and a certificate belongs to the aggregation that was sampled:
`ensemble` (mean of all heads), `head-K`, `prefix-K` (mean of the first K heads), `consensus-K` (the label
that the first K heads agree on, otherwise the ensemble's), `softmax` (mean of the heads' probabilities),
`vote` (the class of most heads), `margin` (the class of the head whose two largest probabilities are furthest
apart) and, for networks that have learned weights, `weighted` (their weighted sum). Of equals the smallest
class wins, or the first head.

These are counted in every certification. An aggregation of somebody else's package is a class like
`Aggregation` in the registry AGGREGATIONS (entry points `smoothheads.aggregations`); it is counted when it is
chosen by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothheads.registry import Registry
from smoothheads.types import ENSEMBLE

if TYPE_CHECKING:
    from torch import Tensor


class Aggregation(Protocol):
    """A base classifier made of the logits of all heads."""

    name: ClassVar[str]

    def classes(self, logits_LNC: Tensor) -> Tensor:
        """Returns classes [N] (int64) from finite logits, each from its own sample's logits alone."""
        ...


AGGREGATIONS: Final[Registry[type[Aggregation]]] = Registry("aggregation", "smoothheads.aggregations")

KINDS: Final = (ENSEMBLE, "head", "prefix", "consensus", "softmax", "vote", "margin", "weighted")

RIDGE: Final = 1e-3  # decides only what the data leave open


def plugin_aggregation(name: str) -> Aggregation | None:
    """Returns the plugin of that name; None if the name is one of ours, or unknown."""
    ours = name.partition("-")[0] in KINDS
    return None if ours or name not in AGGREGATIONS.names() else AGGREGATIONS.get(name)()


def aggregations(heads: int, *, weighted: bool = False) -> tuple[str, ...]:
    """Returns the aggregations of a network with that many heads, in the order of `aggregate_votes`."""
    if heads == 1:
        return (ENSEMBLE,)
    partial = range(2, heads)
    return (
        ENSEMBLE,
        *(f"head-{k}" for k in range(1, heads + 1)),
        *(f"prefix-{k}" for k in partial),
        *(f"consensus-{k}" for k in partial),
        *("softmax", "vote", "margin"),
        *(("weighted",) if weighted else ()),
    )


def ensemble(logits_LNC: Tensor) -> Tensor:
    """Returns the mean over the heads [N, C], in float64, with gradients (eq. 2 of the SOME paper)."""
    import torch

    return logits_LNC.cumsum(0, dtype=torch.float64)[-1] / len(logits_LNC)


def aggregate_votes(
    logits_LNC: ArrayLike, weights_L: ArrayLike | None = None, other: Aggregation | None = None
) -> NDArray[np.int64]:
    """Returns the classes [R, N] that every aggregation gives to N samples, `other` in the last row.

    The logits must be finite: a NaN would count as the largest logit, so the caller looks first. This is
    NumPy, so that an exported ONNX network needs no PyTorch. Means are taken in float64, so that neither
    overflow nor the order in which 32-bit logits are added decides a vote.
    """
    from scipy import special

    logits_LNC = np.asarray(logits_LNC)
    heads_LN: NDArray[np.int64] = logits_LNC.argmax(-1)
    if other is not None:
        import torch  # only plugins work on tensors

        plugin_N = np.asarray(other.classes(torch.from_numpy(logits_LNC)))
        return np.concatenate([aggregate_votes(logits_LNC, weights_L), plugin_N[None]])
    if len(logits_LNC) == 1:
        heads: NDArray[np.int64] = heads_LN
        return heads
    # ensemble and prefix-K: the largest mean logit of the first K heads (the last prefix is the ensemble)
    prefixes_LN = _prefix_means(logits_LNC).argmax(-1)
    ensemble_N, partial = prefixes_LN[-1], slice(1, -1)
    # consensus-K: the label that the first K heads agree on, otherwise the ensemble's
    agree_LN = np.logical_and.accumulate(heads_LN == heads_LN[0], 0)
    consensus_LN = np.where(agree_LN, heads_LN[0], ensemble_N)
    # softmax: the largest mean probability; vote: the class of most heads
    p_LNC: NDArray[np.float64] = special.softmax(logits_LNC.astype(np.float64), -1)
    softmax_N = _prefix_means(p_LNC)[-1].argmax(-1)
    vote_N = (heads_LN[..., None] == np.arange(logits_LNC.shape[-1])).sum(0).argmax(-1)
    # margin: the head whose two largest probabilities are furthest apart
    second = max(-2, -p_LNC.shape[-1])
    top_LNK = np.partition(p_LNC, (second, -1), -1)[..., second:]
    surest_N = (top_LNK[..., -1] - top_LNK[..., 0]).argmax(0)
    margin_N = np.take_along_axis(heads_LN, surest_N[None], 0)[0]
    others = [softmax_N, vote_N, margin_N]
    if weights_L is not None:  # weighted: the learned sum, added head by head
        weighted_LNC = np.asarray(weights_L)[:, None, None] * logits_LNC.astype(np.float64)
        others.append(np.cumsum(weighted_LNC, 0)[-1].argmax(-1))
    return np.stack([ensemble_N, *heads_LN, *prefixes_LN[partial], *consensus_LN[partial], *others])


def fit_weights(logits_LNC: Tensor, labels_N: Tensor, *, ridge: float = RIDGE) -> Tensor:
    """Returns weights [L] of any sign (float64) whose sum of the heads has the least cross-entropy.

    The problem is convex and pulled to the plain mean by `ridge`, so it has one minimum and the weights are a
    function of the data alone.

    Args:
        logits_LNC: logits of noisy training or validation images, never of test images.
        labels_N: their classes.
        ridge: weight of the squared distance from the mean, relative to the logits' variance.
    """
    import torch
    from scipy import optimize

    logits_LNC = logits_LNC.detach().cpu().to(torch.float64)
    heads = len(logits_LNC)
    index_LN1 = labels_N.cpu().expand(heads, -1).unsqueeze(-1)
    # Cross-entropy depends only on the differences to the label's logit.
    margins_LNC = logits_LNC - logits_LNC.gather(-1, index_LN1)
    pull = ridge * float(logits_LNC.var(-1, correction=0).mean())
    # Start from the plain mean, towards which a small ridge pulls the weights.
    mean_L = torch.full((heads,), 1 / heads, dtype=torch.float64)

    def weighted_sum(values_LNC: Tensor, weights_L: Tensor) -> Tensor:
        return (weights_L[:, None, None] * values_LNC).cumsum(0, dtype=torch.float64)[-1]

    def loss(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights_L = torch.from_numpy(w)
        # Cross-entropy of the weighted sum is the logsumexp of its margins.
        scores_NC = weighted_sum(margins_LNC, weights_L)
        gradient_L = (scores_NC.softmax(-1) * margins_LNC).sum(-1).mean(-1) + pull * (weights_L - mean_L)
        value = scores_NC.logsumexp(-1).mean() + pull / 2 * (weights_L - mean_L).square().sum()
        return float(value), gradient_L.numpy()

    def curvature(w: NDArray[np.float64]) -> NDArray[np.float64]:
        # The Hessian is the mean covariance of the heads' margins under the predicted probabilities.
        p_NC = weighted_sum(margins_LNC, torch.from_numpy(w)).softmax(-1)
        centred_LNC = margins_LNC - (p_NC * margins_LNC).sum(-1, keepdim=True)
        flat = (p_NC.sqrt() * centred_LNC).flatten(1)
        hessian_LL: NDArray[np.float64] = (flat @ flat.T / len(p_NC) + pull * torch.eye(heads)).numpy()
        return hessian_LL

    # Newton's method in a trust region finds the one minimum.
    minimum = optimize.minimize(
        loss, mean_L.numpy(), jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-9}
    )
    return torch.from_numpy(minimum.x)


def _prefix_means(values_LNC: NDArray[Any]) -> NDArray[np.float64]:
    counts_L = np.arange(1, len(values_LNC) + 1, dtype=np.float64)
    means_LNC: NDArray[np.float64] = np.cumsum(values_LNC, 0, dtype=np.float64) / counts_L[:, None, None]
    return means_LNC
