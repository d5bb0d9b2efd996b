"""How different the heads are, measured on their logits under noise [L, M, N, C]."""

from __future__ import annotations

import torch
from torch import Tensor


def disagreement(logits_LMNC: Tensor) -> Tensor:
    """Share of samples on which two heads answer differently, over all pairs of two heads or more."""
    answers_LK = logits_LMNC.argmax(-1).flatten(1)
    first, second = _pairs(len(answers_LK), answers_LK.device)
    return (answers_LK[first] != answers_LK[second]).float().mean()


def log_probability_gap(logits_LMNC: Tensor, labels_N: Tensor) -> Tensor:
    """log p_label - max over other classes of log p under the ensemble [M, N]; positive when it is right."""
    ensemble_MNC = logits_LMNC.mean(0)
    label_MN1 = labels_N.expand(ensemble_MNC.shape[:-1]).unsqueeze(-1)
    others_MNC = ensemble_MNC.scatter(-1, label_MN1, float("-inf"))
    return ensemble_MNC.gather(-1, label_MN1).squeeze(-1) - others_MNC.amax(-1)


def _pairs(heads: int, device: torch.device) -> tuple[Tensor, Tensor]:
    first, second = torch.triu_indices(heads, heads, offset=1, device=device)
    return first, second
