"""How different the heads are, measured on their logits under noise [L, M, N, C]."""

from __future__ import annotations

import torch
from torch import Tensor


def disagreement(logits_LMNC: Tensor) -> Tensor:
    """Share of copies on which two heads answer differently, over all pairs of two heads or more."""
    answers_LK = logits_LMNC.argmax(-1).flatten(1)
    first, second = _pairs(len(answers_LK), answers_LK.device)
    return (answers_LK[first] != answers_LK[second]).float().mean()


def error_correlation(logits_LMNC: Tensor, labels_N: Tensor) -> Tensor:
    """Mean correlation of two heads' errors over the copies: 1 when they fail together, 0 when independently.

    Pairs with a head that is always right or always wrong have none; NaN if no pair is left.
    """
    wrong_LK = (logits_LMNC.argmax(-1) != labels_N).double().flatten(1)
    centred_LK = wrong_LK - wrong_LK.mean(1, keepdim=True)
    first, second = _pairs(len(wrong_LK), wrong_LK.device)
    covariance = centred_LK @ centred_LK.T
    scale = covariance.diagonal().sqrt()
    return (covariance / scale.outer(scale))[first, second].nanmean()


def variance_ratio(logits_LMNC: Tensor) -> Tensor:
    """Variance of the ensemble's logits over the draws, relative to the heads' own (needs two draws).

    1 when the heads move together under noise, 1 / L when independently.
    """
    ensemble_variance = logits_LMNC.mean(0).var(0).mean()
    return ensemble_variance / logits_LMNC.var(1).mean()


def log_probability_gap(logits_LMNC: Tensor, labels_N: Tensor) -> Tensor:
    """log p_label - max over other classes of log p under the ensemble [M, N]; positive when it is right."""
    ensemble_MNC = logits_LMNC.mean(0)
    label_MN1 = labels_N.expand(ensemble_MNC.shape[:-1]).unsqueeze(-1)
    others_MNC = ensemble_MNC.scatter(-1, label_MN1, float("-inf"))
    return ensemble_MNC.gather(-1, label_MN1).squeeze(-1) - others_MNC.amax(-1)


def _pairs(heads: int, device: torch.device) -> tuple[Tensor, Tensor]:
    first, second = torch.triu_indices(heads, heads, offset=1, device=device)
    return first, second
