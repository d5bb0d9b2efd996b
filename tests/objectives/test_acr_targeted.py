from __future__ import annotations

from collections.abc import Callable

import torch

from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.acr_targeted import AcrTargeted
from smoothheads.objectives.attack import frozen, l2_norm
from smoothheads.objectives.gaussian import Gaussian
from smoothheads.objectives.losses import cross_entropy, draw_noise, repeat_draws
from smoothheads.objectives.method import Step

Models = Callable[[int], MultiHead]
Steps = Callable[..., Step]


def test_it_starts_as_gaussian_training(tiny_heads: Models, make_step: Steps) -> None:
    ours = AcrTargeted(start=60)(make_step(tiny_heads(2), epoch=60))
    plain = Gaussian(draws=4)(make_step(tiny_heads(2), epoch=60))
    assert torch.equal(ours.per_sample_LN, plain.per_sample_LN)
    later = AcrTargeted(start=60)(make_step(tiny_heads(2), epoch=61))
    assert not torch.equal(later.per_sample_LN, plain.per_sample_LN)


def test_noise_gets_harder_at_its_length_and_stops_at_a_wrong_answer(
    tiny_heads: Models, make_step: Steps
) -> None:
    model = tiny_heads(3)
    step = make_step(model)
    images, noise = repeat_draws(step.images, 2), draw_noise(step.images, 0.25, 2, step.generator)
    method = AcrTargeted(draws=2, step_size=0.2, steps=5)
    with frozen(model):
        harder = method._harder_noise(step, images, noise)
        before, after = (model(images + n).view(3, 2, 12, 3) for n in (noise, harder))
    torch.testing.assert_close(l2_norm(harder), l2_norm(noise), rtol=1e-5, atol=0)
    wrong = before.mean(0).argmax(-1) != step.labels
    assert wrong.any()
    assert not wrong.all()
    assert torch.equal(harder[wrong.flatten()], noise[wrong.flatten()])
    loss_before, loss_after = (cross_entropy(z, step.labels).mean(0)[~wrong].mean() for z in (before, after))
    assert loss_after > loss_before
    assert (after.mean(0).argmax(-1) != step.labels)[wrong].all()
