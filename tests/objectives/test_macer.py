from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from smoothheads.objectives.losses import nll_of_mean
from smoothheads.objectives.macer import Macer
from smoothheads.objectives.method import Step

SETTINGS = Macer(draws=2, temperature=1.0, margin=8.0, strength=12.0)


def test_the_worked_example_on_the_first_head(logits_LMNC: Tensor, labels_N: Tensor) -> None:
    classification = nll_of_mean(logits_LMNC[:1], labels_N)
    assert classification.mean().item() == pytest.approx(math.log(2), abs=1e-12)
    torch.testing.assert_close(
        classification[0].exp().reciprocal(), torch.tensor([0.8, 0.3125], dtype=torch.float64)
    )
    robustness = SETTINGS.radius_loss(logits_LMNC[:1], labels_N, 0.5)
    assert robustness[0, 0].item() == pytest.approx(0.25 * (8 - 2.123172799), abs=1e-8)
    assert robustness[0, 1].item() == 0
    assert robustness.mean().item() == pytest.approx(0.734603, abs=1e-6)
    assert (classification + 12 * robustness).mean().item() == pytest.approx(9.508387, abs=1e-6)


def test_the_method_waits_and_judges_by_the_mean_cross_entropy(
    fixed_logits: nn.Module,
    logits_LMNC: Tensor,
    labels_N: Tensor,
    smoothed_LN: Tensor,
    make_step: Callable[..., Step],
) -> None:
    method = Macer(draws=2, temperature=1.0, defer=50)
    classification = nll_of_mean(logits_LMNC, labels_N)
    robustness = method.radius_loss(logits_LMNC, labels_N, 0.25)
    for epoch, expected in ((50, classification), (51, classification + 12 * robustness)):
        step = make_step(fixed_logits, images=torch.rand(2, 1, 4, 4), labels=labels_N, epoch=epoch)
        losses = method(step)
        torch.testing.assert_close(losses.per_sample_LN, expected)
        torch.testing.assert_close(losses.smoothed_LN, smoothed_LN)


def test_the_gradient_is_the_derivative(logits_LMNC: Tensor, labels_N: Tensor) -> None:
    def loss(logits: Tensor) -> Tensor:
        return SETTINGS.radius_loss(logits, labels_N, 0.5)

    apart = logits_LMNC + 0.1 * torch.arange(3)  # equal probabilities have no derivative of their ranks
    assert torch.autograd.gradcheck(loss, apart.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certain_answers_are_left_alone_and_give_no_nan(dtype: torch.dtype) -> None:
    logits = torch.zeros(1, 4, 2, 3, dtype=dtype)
    logits[..., 0] = 1e4
    logits.requires_grad_()
    loss = Macer().radius_loss(logits, torch.tensor([0, 1]), 0.5)
    assert loss.tolist() == [[0, 0]]
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert gradient.abs().max() == 0


def test_a_larger_margin_means_a_smaller_loss(labels_N: Tensor) -> None:
    logits = torch.zeros(1, 1, 2, 3)
    losses = []
    for label_logit in (0.5, 1.0, 2.0):
        logits[0, 0, [0, 1], labels_N] = label_logit
        losses.append(SETTINGS.radius_loss(logits, labels_N, 0.5).sum().item())
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 3
