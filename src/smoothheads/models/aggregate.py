"""From the logits of L heads to the answers of several base classifiers, all out of one forward pass.

Each rule is a classifier of its own, and a certificate belongs to the rule that was sampled:
`ensemble` (mean of all heads), `head-K`, `prefix-K` (mean of the first K heads), `consensus-K` (the label
that the first K heads agree on, otherwise the ensemble's), `softmax` (mean of the heads' probabilities),
`vote` (what most heads say), `margin` (what the head says whose two largest probabilities are furthest apart)
and, for networks that have learned weights, `weighted` (their weighted sum). Of equals the smallest class
wins, or the first head.

These are counted in every certification. A rule of somebody else's package is a class like `Rule` in the
registry RULES (entry points `smoothheads.rules`); it is counted when it is asked for by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothheads.lazy import optimize, torch
from smoothheads.registry import Registry
from smoothheads.types import ENSEMBLE

if TYPE_CHECKING:
    from torch import Tensor


class Rule(Protocol):
    """A base classifier made of the answers of all heads."""

    name: ClassVar[str]

    def classes(self, logits_LNC: Tensor) -> Tensor:
        """Classes [N] (int64) from finite logits; each from its own sample's logits alone."""
        ...


RULES: Final[Registry[type[Rule]]] = Registry("rule", "smoothheads.rules")

KINDS: Final = (ENSEMBLE, "head", "prefix", "consensus", "softmax", "vote", "margin", "weighted")

RIDGE: Final = 1e-3  # of the logits' variance: decides only what the data leave open


def other_rule(name: str) -> Rule | None:
    """The rule of somebody else's package with that name; none if it is one of ours, or nobody's."""
    ours = name.partition("-")[0] in KINDS
    return None if ours or name not in RULES.names() else RULES.get(name)()


def rules(heads: int, *, weighted: bool = False) -> tuple[str, ...]:
    """The rules of a network with that many heads, in the order of the rows of `decide`."""
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
    """Mean over the heads [N, C], in float64."""
    return _prefix_means(logits_LNC)[-1]


def decide(logits_LNC: Tensor, weights_L: Tensor | None = None, other: Rule | None = None) -> Tensor:
    """Classes [R, N] (int64), one row per rule, `other` last.

    The logits must be finite: a NaN would count as the largest logit, so the caller looks first.
    """
    if other is not None:
        return torch.cat([decide(logits_LNC, weights_L), other.classes(logits_LNC)[None]])
    heads_LN = logits_LNC.argmax(-1)
    if len(logits_LNC) == 1:
        return heads_LN
    prefixes_LN = _prefix_means(logits_LNC).argmax(-1)
    ensemble_N, partial = prefixes_LN[-1], slice(1, -1)
    agree_LN = (heads_LN == heads_LN[0]).cumprod(0).bool()
    consensus_LN = torch.where(agree_LN, heads_LN[0], ensemble_N)
    p_LNC = logits_LNC.to(torch.float64).softmax(-1)
    others_N = [ensemble(p_LNC).argmax(-1), _vote(heads_LN, p_LNC.shape[-1]), _margin(heads_LN, p_LNC)]
    if weights_L is not None:
        others_N.append(_weighted_sum(logits_LNC, weights_L).argmax(-1))
    first = [ensemble_N[None], heads_LN, prefixes_LN[partial], consensus_LN[partial]]
    return torch.cat([*first, torch.stack(others_N)])


def fit_weights(logits_LNC: Tensor, labels_N: Tensor, *, ridge: float = RIDGE) -> Tensor:
    """Weights [L] of any sign (float64) under which the heads' weighted sum has the least cross-entropy.

    The problem is convex and pulled to the plain mean by `ridge`, so it has one minimum and the weights are a
    function of the data alone. Give it noisy training or validation images, never those of the test.
    """
    logits_LNC = logits_LNC.detach().cpu().to(torch.float64)
    heads = len(logits_LNC)
    index_LN1 = labels_N.cpu().expand(heads, -1).unsqueeze(-1)
    gaps_LNC = logits_LNC - logits_LNC.gather(-1, index_LN1)
    pull = ridge * float(logits_LNC.var(-1, correction=0).mean())
    mean_L = torch.full((heads,), 1 / heads, dtype=torch.float64)

    def loss(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights_L = torch.from_numpy(w)
        scores_NC = _weighted_sum(gaps_LNC, weights_L)
        gradient_L = (scores_NC.softmax(-1) * gaps_LNC).sum(-1).mean(-1) + pull * (weights_L - mean_L)
        value = scores_NC.logsumexp(-1).mean() + pull / 2 * (weights_L - mean_L).square().sum()
        return float(value), gradient_L.numpy()

    def curvature(w: NDArray[np.float64]) -> NDArray[np.float64]:
        p_NC = _weighted_sum(gaps_LNC, torch.from_numpy(w)).softmax(-1)
        centred_LNC = gaps_LNC - (p_NC * gaps_LNC).sum(-1, keepdim=True)
        flat = (p_NC.sqrt() * centred_LNC).flatten(1)
        hessian_LL: NDArray[np.float64] = (flat @ flat.T / len(p_NC) + pull * torch.eye(heads)).numpy()
        return hessian_LL

    minimum = optimize.minimize(
        loss, mean_L.numpy(), jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-9}
    )
    return torch.from_numpy(minimum.x)


def _prefix_means(logits_LNC: Tensor) -> Tensor:
    """Row k is the mean of the first k + 1 heads. In float64, so that neither overflow nor the order in which
    32-bit logits are added decides a vote."""
    sums_LNC = logits_LNC.cumsum(0, dtype=torch.float64)
    counts_L = torch.arange(1, len(logits_LNC) + 1, device=logits_LNC.device)
    return sums_LNC / counts_L[:, None, None]


def _weighted_sum(logits_LNC: Tensor, weights_L: Tensor) -> Tensor:
    return (weights_L[:, None, None] * logits_LNC).cumsum(0, dtype=torch.float64)[-1]


def _vote(heads_LN: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(heads_LN, classes).sum(0).argmax(-1)


def _margin(heads_LN: Tensor, p_LNC: Tensor) -> Tensor:
    top_LNK = p_LNC.topk(min(2, p_LNC.shape[-1])).values
    surest_N = (top_LNK[..., 0] - top_LNK[..., -1]).argmax(0)
    return heads_LN.gather(0, surest_N[None])[0]
