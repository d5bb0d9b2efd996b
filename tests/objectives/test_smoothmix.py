from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.attack import FixedNoise, l2_norm
from smoothheads.objectives.losses import draw_noise, kl_divergence
from smoothheads.objectives.method import Losses, Step
from smoothheads.objectives.smoothmix import SmoothMix, mean_prediction, mixed_target

Models = Callable[[int], MultiHead]
Steps = Callable[..., Step]
SOFT = torch.tensor([[1 / 4, 1 / 3], [1, 1 / 2], [3 / 8, 1]], dtype=torch.float64)
OFFICIAL = torch.tensor([[12 / 13, 1 / 2], [1, 9 / 11], [1 / 4, 1]], dtype=torch.float64)


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_the_worked_example(logits_LMNC: Tensor) -> None:
    answer = mean_prediction(logits_LMNC)
    expected = table(
        [0.360185185185, 0.319907407407, 0.319907407407], [0.315773809524, 0.315773809524, 0.368452380952]
    )
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-11)
    target = mixed_target(answer, torch.tensor([0.1, 0.4]).double())
    expected = table([0.3575, 0.32125, 0.32125], [0.322797619048, 0.322797619048, 0.354404761905])
    torch.testing.assert_close(target, expected, rtol=0, atol=1e-8)
    kl = kl_divergence(mixed_target(answer, torch.tensor([0.1, 0.4], dtype=torch.float64)), logits_LMNC)
    expected = table(
        [0.461871471089, 0.108028398646], [0.118843468984, 0.439070514860], [0.238902094811, 0.139027968431]
    )
    torch.testing.assert_close(kl.mean(1), expected, rtol=0, atol=1e-11)
    assert (SOFT * kl.mean(1)).mean().item() == pytest.approx(0.1197453857310564, abs=1e-12)
    assert (OFFICIAL * kl.mean(1)).mean().item() == pytest.approx(0.19286559483138965, abs=1e-12)


def run(
    fixed_logits: nn.Module, labels_N: Tensor, make_step: Steps, **settings: Any
) -> tuple[Losses, Tensor]:
    """The method on fixed logits, and the shares by which it mixed."""
    images = torch.rand(2, 1, 4, 4, dtype=torch.float64)
    step = make_step(fixed_logits, images=images, labels=labels_N, epoch=settings.pop("epoch", 10))
    losses = SmoothMix(**settings)(step)
    replay = make_step(fixed_logits, images=images).generator
    draw_noise(images, 1.0, 2, replay)
    return losses, torch.rand(2, generator=replay, dtype=torch.float64) / 2


def mix_term(logits_LMNC: Tensor, share_N: Tensor) -> Tensor:
    return kl_divergence(mixed_target(mean_prediction(logits_LMNC), share_N), logits_LMNC).mean(1)


def test_the_method_adds_the_mixing_term(
    fixed_logits: nn.Module, logits_LMNC: Tensor, labels_N: Tensor, smoothed_LN: Tensor, make_step: Steps
) -> None:
    losses, share_N = run(fixed_logits, labels_N, make_step)
    assert share_N.max() <= 0.5
    torch.testing.assert_close(losses.per_sample_LN, smoothed_LN + 5 * mix_term(logits_LMNC, share_N))
    torch.testing.assert_close(losses.smoothed_LN, smoothed_LN)
    assert losses.unweighted_LN is None
    early, _ = run(fixed_logits, labels_N, make_step, epoch=2)
    torch.testing.assert_close(early.per_sample_LN, smoothed_LN + mix_term(logits_LMNC, share_N))


def test_the_mixing_term_can_stay_unweighted(
    fixed_logits: nn.Module, logits_LMNC: Tensor, labels_N: Tensor, smoothed_LN: Tensor, make_step: Steps
) -> None:
    losses, share_N = run(fixed_logits, labels_N, make_step, weigh_mix=False)
    torch.testing.assert_close(losses.per_sample_LN, smoothed_LN)
    torch.testing.assert_close(losses.unweighted_LN, 5 * mix_term(logits_LMNC, share_N))


def test_the_mask_drops_images_with_a_wrong_answer(
    fixed_logits: nn.Module, logits_LMNC: Tensor, smoothed_LN: Tensor, make_step: Steps
) -> None:
    losses, share_N = run(fixed_logits, torch.tensor([1, 2]), make_step, mask=True, weigh_mix=False)
    assert losses.unweighted_LN is not None
    assert losses.unweighted_LN[:, 0].abs().max() == 0
    torch.testing.assert_close(losses.unweighted_LN[:, 1], 5 * mix_term(logits_LMNC, share_N)[:, 1])


def test_gradient_reaches_the_target_unless_it_is_stopped(
    fixed_logits: nn.Module, labels_N: Tensor, make_step: Steps
) -> None:
    gradients = []
    for flows in (True, False):
        losses, _ = run(fixed_logits, labels_N, make_step, target_gradient=flows)
        gradients.append(torch.autograd.grad(losses.per_sample_LN.sum(), list(fixed_logits.parameters()))[0])
    assert not torch.allclose(gradients[0], gradients[1])


def test_neighbours_of_the_attack(tiny_heads: Models, make_step: Steps) -> None:
    model = tiny_heads(2).eval()
    step = make_step(model)
    view = FixedNoise(model, draw_noise(step.images, 0.25, 2, step.generator), 2)
    method = SmoothMix(steps=3, step_size=0.1, mix_step=1)
    start, last = method._neighbours(view, step, warm=0.5)
    assert l2_norm(start - step.images).max() <= 0.05 + 1e-6
    assert l2_norm(last - step.images).max() <= 0.3 + 1e-5
    assert l2_norm(last - step.images).min() > l2_norm(start - step.images).max()
    for images in (start, last):
        assert images.min() >= 0
        assert images.max() <= 1
    short = SmoothMix(steps=3, step_size=0.1, max_norm=0.15)
    assert l2_norm(short._neighbours(view, step, warm=1.0)[1] - step.images).max() <= 0.15 + 1e-6
    assert torch.equal(short._neighbours(view, step, warm=1.0)[0], step.images)


def test_a_single_network_is_masked_and_heads_are_not(tiny_heads: Models, make_step: Steps) -> None:
    for heads, masked in ((1, True), (3, False)):
        outcomes = []
        for mask in (None, masked, not masked):
            step = make_step(tiny_heads(heads), labels=torch.zeros(12, dtype=torch.long))
            outcomes.append(SmoothMix(mask=mask)(step).per_sample_LN)
        assert torch.equal(outcomes[0], outcomes[1])
        assert not torch.equal(outcomes[0], outcomes[2])
