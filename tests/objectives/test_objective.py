from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from smoothheads.config import DiversityConfig, Gaussian, ObjectiveConfig, TeachingConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.base import Step, noisy_copies
from smoothheads.objectives.objective import Objective

Models = Callable[[int], MultiHead]
Steps = Callable[..., Step]


def objective(**settings: Any) -> Objective:
    return Objective(ObjectiveConfig(**settings), classes=3, epochs=4)


@pytest.mark.parametrize("draws", [1, 2])
def test_one_head_is_plain_training_bit_for_bit(tiny_heads: Models, make_step: Steps, draws: int) -> None:
    ours, plain = tiny_heads(1), tiny_heads(1)
    ours_sgd, plain_sgd = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (ours, plain))
    train = objective(method=Gaussian(draws=draws))
    for seed in range(3):
        step = make_step(ours, generator=torch.Generator().manual_seed(seed))
        loss = train(step).loss
        ours_sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        ours_sgd.step()

        copies = noisy_copies(step.images, step.sigma, draws, torch.Generator().manual_seed(seed))
        expected = F.cross_entropy(plain(copies)[0], step.labels.repeat(draws))
        plain_sgd.zero_grad()
        expected.backward()  # type: ignore[no-untyped-call]
        plain_sgd.step()
        torch.testing.assert_close(loss, expected)
    for mine, theirs in zip(ours.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_uniform_heads_minimise_the_mean_over_heads(tiny_heads: Models, make_step: Steps) -> None:
    terms = objective(teaching=TeachingConfig(weights="uniform"))(make_step(tiny_heads(3)))
    torch.testing.assert_close(terms.loss.detach(), terms.head_losses_L.mean())
    assert terms.mean_weight_L.tolist() == [1.0, 1.0, 1.0]


def test_what_is_reported_is_per_head_and_detached(tiny_heads: Models, make_step: Steps) -> None:
    terms = objective()(make_step(tiny_heads(3)))
    for value in (terms.head_losses_L, terms.lam_L, terms.easy_fraction_L, terms.mean_weight_L):
        assert value.shape == (3,)
        assert not value.requires_grad


def test_diversity_is_absent_for_one_head_and_when_switched_off(tiny_heads: Models) -> None:
    one, three = tiny_heads(1), tiny_heads(3)
    assert objective().diversity(one) is None
    assert objective(diversity=DiversityConfig(weight=0)).diversity(three) is None
    full = objective().diversity(three)
    half = objective(diversity=DiversityConfig(weight=0.5)).diversity(three)
    assert full is not None
    assert half is not None
    torch.testing.assert_close(half * 2, full)


def test_under_autocast_the_losses_are_float32(tiny_heads: Models, make_step: Steps) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        terms = objective()(make_step(tiny_heads(3)))
    assert terms.loss.dtype == terms.lam_L.dtype == torch.float32
