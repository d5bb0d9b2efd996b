from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from smoothheads.objectives.consistency import Consistency
from smoothheads.objectives.method import Step

KL = [[0.0, 0.096301372827], [0.017405334131, 0.176936891846], [0.0, 0.0]]
ENTROPY = [
    [0.639031859650, 1.097625061190],
    [1.040230463677, 0.890048152231],
    [0.948915435895, 1.004242473054],
]
SOFT = torch.tensor([[1 / 4, 1 / 3], [1, 1 / 2], [3 / 8, 1]], dtype=torch.float64)
OFFICIAL = torch.tensor([[12 / 13, 1 / 2], [1, 9 / 11], [1 / 4, 1]], dtype=torch.float64)


def table(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def regulariser(logits_LMNC: Tensor, **settings: Any) -> Tensor:
    return Consistency(**settings).inconsistency(logits_LMNC)


def test_the_terms_of_the_worked_example(logits_LMNC: Tensor) -> None:
    kl_LN = regulariser(logits_LMNC, strength=1.0, form="kl")
    torch.testing.assert_close(kl_LN, table(KL), rtol=0, atol=1e-11)
    entropy_LN = regulariser(logits_LMNC, strength=0.0, entropy=1.0)
    torch.testing.assert_close(entropy_LN, table(ENTROPY), rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("strength", "unweighted", "soft", "official"),
    [
        (10.0, 0.952747118481834, 0.5108715033233228, 0.696255206074183),
        (20.0, 1.4371531164888651, 0.7408285660952626, 1.0467928201053984),
    ],
)
def test_the_worked_example_under_weights(
    strength: float, unweighted: float, soft: float, official: float, logits_LMNC: Tensor
) -> None:
    loss_LN = regulariser(logits_LMNC, strength=strength)
    assert loss_LN.mean().item() == pytest.approx(unweighted, abs=1e-12)
    assert (SOFT * loss_LN).mean().item() == pytest.approx(soft, abs=1e-12)
    assert (OFFICIAL * loss_LN).mean().item() == pytest.approx(official, abs=1e-12)


def test_the_other_forms(logits_LMNC: Tensor) -> None:
    kl, entropy = table(KL), table(ENTROPY)
    torch.testing.assert_close(
        regulariser(logits_LMNC, strength=3.0, form="xent"), 3 * (kl + entropy), rtol=0, atol=1e-10
    )
    p_LMNC = logits_LMNC.softmax(-1)
    squares = (p_LMNC[:, 0] - p_LMNC[:, 1]).pow(2).sum(-1)
    torch.testing.assert_close(regulariser(logits_LMNC, strength=3.0, form="mse"), 3 * squares)


def test_gradient_flows_through_the_mean_unless_it_is_stopped(logits_LMNC: Tensor) -> None:
    def gradient(**settings: Any) -> Tensor:
        logits = logits_LMNC.clone().requires_grad_()
        out: Tensor = torch.autograd.grad(regulariser(logits, **settings).sum(), logits)[0]
        return out

    attached, stopped = gradient(strength=1.0), gradient(strength=1.0, mean_gradient=False)
    assert not torch.allclose(attached, stopped)
    # A stopped mean makes the entropy a constant.
    torch.testing.assert_close(stopped, gradient(strength=1.0, entropy=7.0, mean_gradient=False))
    assert not torch.allclose(attached, gradient(strength=1.0, entropy=7.0))

    def loss(logits: Tensor) -> Tensor:
        return regulariser(logits, strength=2.0)

    assert torch.autograd.gradcheck(loss, logits_LMNC.clone().requires_grad_())


def test_one_certain_answer_gives_finite_gradients() -> None:
    logits = torch.tensor([[[[200.0, 0, 0]], [[-200.0, 0, 0]]]], requires_grad=True)
    (gradient,) = torch.autograd.grad(regulariser(logits, strength=1.0).sum(), logits)
    assert gradient.isfinite().all()


def test_the_method_adds_the_regulariser_to_the_smoothed_loss(
    fixed_logits: nn.Module,
    logits_LMNC: Tensor,
    labels_N: Tensor,
    smoothed_LN: Tensor,
    make_step: Callable[..., Step],
) -> None:
    method = Consistency(strength=10.0)
    losses = method(make_step(fixed_logits, images=torch.rand(2, 1, 4, 4), labels=labels_N))
    torch.testing.assert_close(losses.per_sample_LN, smoothed_LN + method.inconsistency(logits_LMNC))
    torch.testing.assert_close(losses.smoothed_LN, smoothed_LN)
