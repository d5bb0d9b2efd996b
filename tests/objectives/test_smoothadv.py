from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothheads.objectives.attack import FixedNoise, l2_norm
from smoothheads.objectives.losses import draw_noise
from smoothheads.objectives.method import Step
from smoothheads.objectives.smoothadv import SmoothAdv

Steps = Callable[..., Step]
DIRECTION = torch.tensor([3.0, -4.0]).repeat(8).view(1, 1, 4, 4)


class Linear(nn.Module):
    """Two equal heads with logits (0, slope * (w . x - bias)), w of unit length."""

    def __init__(self, slope: float = 1.0, bias: float = 0.0) -> None:
        super().__init__()
        self.w = nn.Parameter(F.normalize(DIRECTION.flatten(), dim=0))
        self.slope, self.bias = slope, bias
        self.inputs: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.inputs.append(images.detach())
        score = self.slope * (images.flatten(1) @ self.w - self.bias)
        return torch.stack([torch.zeros_like(score), score], dim=1).expand(2, -1, -1)


def step_on(model: nn.Module, make_step: Steps, **changes: Any) -> Step:
    images = torch.full((3, 1, 4, 4), 0.5)
    return make_step(model, **({"images": images, "labels": torch.zeros(3, dtype=torch.long)} | changes))


def attacked(
    model: nn.Module, make_step: Steps, *, quiet: bool = False, **settings: Any
) -> tuple[Tensor, Step]:
    """The images of a step before and after the attack, under noise or (quiet) under none."""
    chosen = SmoothAdv(**({"draws": 2, "steps": 5, "epsilon": 0.3, "warmup": 1} | settings))
    step = step_on(model, make_step)
    noise = draw_noise(step.images, 0.0 if quiet else step.sigma, chosen.draws, step.generator)
    return chosen.perturbed(FixedNoise(model, noise, chosen.draws), step), step


@pytest.mark.parametrize("target", ["heads", "ensemble"])
def test_pgd_on_a_linear_network_takes_the_whole_radius_along_its_weights(
    target: str, make_step: Steps
) -> None:
    model = Linear()
    adversarial, step = attacked(model, make_step, attack_target=target)
    expected = 0.3 * model.w.detach().view(1, 4, 4).expand(3, 1, 4, 4)
    torch.testing.assert_close(adversarial - step.images, expected, rtol=0, atol=1e-5)


def test_pgd_stays_in_the_cube(make_step: Steps) -> None:
    adversarial, step = attacked(Linear(), make_step, epsilon=5.0)
    assert adversarial.min() >= 0
    assert adversarial.max() <= 1
    assert l2_norm(adversarial - step.images).max() <= 5


def test_a_vanishing_gradient_gives_a_random_direction(make_step: Steps) -> None:
    adversarial, step = attacked(Linear(slope=0.0), make_step, steps=1)
    delta = adversarial - step.images
    torch.testing.assert_close(l2_norm(delta).flatten(), torch.full((3,), 0.3))
    assert not torch.allclose(delta[0], delta[1])


def test_ddn_finds_the_distance_to_the_boundary(make_step: Steps) -> None:
    start = 0.5 * float(Linear().w.detach().sum())
    model = Linear(slope=50.0, bias=start + 0.2)
    settings = {"steps": 60, "norm_start": 0.5, "norm_factor": 0.05, "draws": 1, "levels": None}
    found, step = attacked(model, make_step, quiet=True, attack="ddn", epsilon=1.0, **settings)
    assert (model(found)[0].argmax(-1) != step.labels).all()
    assert l2_norm(found - step.images).flatten().tolist() == pytest.approx([0.2] * 3, abs=0.02)


def test_ddn_without_success_leaves_the_image(make_step: Steps) -> None:
    adversarial, step = attacked(Linear(slope=50.0, bias=100.0), make_step, attack="ddn")
    assert torch.equal(adversarial, step.images)


def test_epsilon_warms_up_and_training_reuses_the_attacked_draws(make_step: Steps) -> None:
    for epoch, radius in ((1, 0.05), (5, 0.25), (10, 0.5), (40, 0.5)):
        model = Linear()
        step = step_on(model, make_step, epoch=epoch)
        losses = SmoothAdv(draws=2, steps=2, epsilon=0.5)(step)
        moved = model.inputs[-1] - model.inputs[0]
        assert l2_norm(moved).flatten().tolist() == pytest.approx([radius] * 6, abs=1e-5)
        torch.testing.assert_close(moved[:3], moved[3:], rtol=0, atol=1e-6)
        assert losses.per_sample_LN.shape == (2, 3)


def test_training_on_the_first_draw_alone(make_step: Steps) -> None:
    model = Linear()
    SmoothAdv(draws=4, steps=2, train_on="first")(step_on(model, make_step, epoch=10))
    assert [len(images) for images in model.inputs] == [12, 12, 3]
    shift = model.inputs[-1] - model.inputs[0][:3]
    torch.testing.assert_close(shift, shift[:1].expand_as(shift), rtol=0, atol=1e-5)


def test_ddn_starts_at_the_warmed_epsilon_and_sees_whole_grey_levels(make_step: Steps) -> None:
    """As in the original: after one failed step the perturbation is 1.05 of its first length, rounded."""
    model = Linear(slope=50.0, bias=100.0)
    _, step = attacked(model, make_step, quiet=True, epsilon=0.4, attack="ddn", steps=2)
    moved = model.inputs[-1][:3]
    assert l2_norm(moved - step.images).flatten().tolist() == pytest.approx([0.42] * 3, abs=0.01)
    torch.testing.assert_close(255 * moved, (255 * moved).round(), rtol=0, atol=1e-3)


def test_a_batch_counts_the_draws_that_are_trained_on() -> None:
    assert SmoothAdv(draws=8).trained_draws == 8
    assert SmoothAdv(draws=8, train_on="first").trained_draws == 1
