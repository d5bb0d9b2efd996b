from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from smoothheads.errors import ConfigError
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.attack import frozen, l2_norm
from smoothheads.objectives.catrs import CatRs, bottom_k_mean, match_moments
from smoothheads.objectives.losses import cross_entropy, draw_noise, kl_divergence, repeat_draws
from smoothheads.objectives.method import Step

Steps = Callable[..., Step]
SOFT = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]], dtype=torch.float64)


def test_the_worked_example_of_the_low_part() -> None:
    losses = torch.tensor([3.0, 0.5, 0.2, 1.0]).view(1, 4, 1)
    assert bottom_k_mean(losses, torch.tensor([[2]])).item() == pytest.approx(0.175)
    assert bottom_k_mean(losses, torch.tensor([[4]])).item() == pytest.approx(4.7 / 4)


def test_heads_that_are_sure_either_way_know_their_count(
    fixed_logits: nn.Module, logits_LMNC: Tensor, labels_N: Tensor, make_step: Steps
) -> None:
    """Head 1 is right on all draws of image 1; heads 2 and 3 never are: their counts are not random."""
    images = torch.rand(2, 1, 4, 4, dtype=torch.float64)
    step = make_step(fixed_logits, images=images, labels=labels_N, prepared=SOFT[[2, 0]])
    losses = CatRs(draws=2, strength=0.5)(step)
    ce = cross_entropy(logits_LMNC, labels_N)
    worst = kl_divergence(SOFT[[2, 0]], logits_LMNC).amax(1)
    expected = ce[0, :, 0].mean() + 0.5 * worst[0, 0]
    torch.testing.assert_close(losses.per_sample_LN[0, 0], expected)
    for head in (1, 2):
        torch.testing.assert_close(losses.per_sample_LN[head, 0], ce[head, :, 0].min() / 2)
    torch.testing.assert_close(losses.smoothed_LN, ce.mean(1))


def test_the_count_is_binomial_in_the_hits(
    fixed_logits: nn.Module, labels_N: Tensor, make_step: Steps
) -> None:
    """Head 1 is right on one of two draws of image 2: both are kept in a quarter of the steps."""
    images = torch.rand(2, 1, 4, 4, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    method = CatRs(draws=2, strength=0.0)
    values = []
    for _ in range(100):
        step = make_step(
            fixed_logits, images=images, labels=labels_N, prepared=SOFT[[0, 1]], generator=generator
        )
        values.append(round(method(step).per_sample_LN[0, 1].item(), 6))
    assert len(set(values)) == 2
    assert 8 <= values.count(max(values)) <= 45


def test_noise_keeps_its_mean_and_size() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = 0.25 * torch.randn(6, 3, 8, 8, generator=generator)
    moved = 1.7 * noise + 0.3
    back = match_moments(moved, noise)
    dims = (1, 2, 3)
    torch.testing.assert_close(back.mean(dims), noise.mean(dims))
    rms = back.square().mean(dims).sqrt()
    assert (rms / noise.square().mean(dims).sqrt()).max() < 1.01
    torch.testing.assert_close(match_moments(noise + 1e-4, noise), noise, rtol=0, atol=0.01)


def test_the_attack_strays_from_the_soft_labels_and_stays_near(
    tiny_heads: Callable[[int], MultiHead], make_step: Steps
) -> None:
    model = tiny_heads(3)
    step = make_step(model)
    method = CatRs(draws=2, epsilon=0.5)
    soft = torch.nn.functional.one_hot(step.labels, 3).float()
    images, noise = repeat_draws(step.images, 2), draw_noise(step.images, 0.25, 2, step.generator)
    with frozen(model):
        worst = method._worst_noise(step, images, noise, soft)
        before, after = (
            kl_divergence(soft, model(images + n).view(3, 2, 12, 3)).mean().item() for n in (noise, worst)
        )
    assert after > before + 0.01
    assert l2_norm(worst - noise).max() < 0.75
    assert not worst.requires_grad


def test_soft_labels_are_needed(fixed_logits: nn.Module, make_step: Steps) -> None:
    with pytest.raises(ConfigError, match="cat-rs needs soft labels"):
        CatRs()(make_step(fixed_logits))
