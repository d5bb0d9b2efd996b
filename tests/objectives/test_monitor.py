from __future__ import annotations

import pytest
import torch
from torch import Tensor

from smoothheads.objectives.monitor import disagreement, log_probability_gap


def answers(*heads: list[int]) -> Tensor:
    """Logits [L, 1, N, 3] of heads with these answers."""
    return torch.nn.functional.one_hot(torch.tensor(heads), 3).float().unsqueeze(1)


def test_disagreement_is_over_pairs_and_copies() -> None:
    assert disagreement(answers([0, 1, 2, 0], [0, 1, 2, 0])).item() == 0
    assert disagreement(answers([0, 1, 2, 0], [0, 1, 2, 1], [0, 0, 2, 1])).item() == pytest.approx(4 / 12)


def test_the_gap_is_that_of_the_ensembles_log_probabilities(logits_LMNC: Tensor, labels_N: Tensor) -> None:
    gap_MN = log_probability_gap(logits_LMNC, labels_N)
    log_p = logits_LMNC.mean(0).log_softmax(-1)
    for draw in range(2):
        for image, label in enumerate(labels_N.tolist()):
            others = [log_p[draw, image, c].item() for c in range(3) if c != label]
            expected = log_p[draw, image, label].item() - max(others)
            assert gap_MN[draw, image].item() == pytest.approx(expected)
