from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

from smoothheads.errors import ConfigError
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.drt import Drt, gradient_diversity, margins
from smoothheads.objectives.losses import add_noise
from smoothheads.objectives.method import Step
from smoothheads.objectives.smoothadv import SmoothAdv

Models = Callable[[int], MultiHead]
Steps = Callable[..., Step]


def test_the_worked_example_of_a_pair() -> None:
    gradients = torch.eye(2).view(2, 1, 1, 2)
    assert gradient_diversity(gradients, torch.ones(2, 1, 1, dtype=torch.bool)).flatten().tolist() == [1, 1]
    one_wrong = torch.tensor([True, False]).view(2, 1, 1)
    assert gradient_diversity(gradients, one_wrong).sum() == 0


def test_margins_are_between_the_two_largest_probabilities(logits_LMNC: Tensor) -> None:
    """Head 1 on image 1: 0.8 against 0.1; head 3: 0.45 twice."""
    assert margins(logits_LMNC)[[0, 2], 0, 0].tolist() == pytest.approx([0.7, 0.0])


def test_the_mean_of_the_losses_is_the_published_objective_over_heads(
    tiny_heads: Models, make_step: Steps
) -> None:
    model = tiny_heads(3).eval().double()
    step = make_step(model, images=torch.rand(5, 1, 4, 4, dtype=torch.float64), labels=torch.arange(5) % 3)
    method = Drt(draws=2, gradient_diversity=0.7, confidence_margin=0.3)
    total = method(step).per_sample_LN.mean() * 3

    copies = add_noise(step.images, 0.25, 2, make_step(model).generator).requires_grad_()
    labels = step.labels.repeat(2)
    logits = model(copies)
    ce = torch.stack([nn.functional.cross_entropy(head, labels) for head in logits]).sum()
    top = logits.softmax(-1).topk(2).values
    margin, right = top[..., 0] - top[..., 1], logits.argmax(-1) == labels
    grads = [torch.autograd.grad(m.sum(), copies, retain_graph=True)[0].flatten(1) for m in margin]
    pairs = [
        float((grads[i][n] + grads[j][n]).square().sum())
        for i, j in combinations(range(3), 2)
        for n in range(10)
        if right[i, n] and right[j, n]
    ]
    assert pairs
    expected = ce + 0.7 * sum(pairs) / len(pairs) - 0.3 * margin[right].mean()
    torch.testing.assert_close(total, expected)


def test_the_gradient_goes_through_the_input_gradients(tiny_heads: Models, make_step: Steps) -> None:
    """Double backward, against finite differences along one direction of the weights."""
    model = tiny_heads(2).eval().double()
    images, labels = torch.rand(4, 1, 4, 4, dtype=torch.float64), torch.arange(4) % 3
    method = Drt(gradient_diversity=1.0, confidence_margin=0.5)
    weight = model.trunk.get_submodule("0").get_parameter("weight")

    def loss() -> Tensor:
        return method(make_step(model, images=images, labels=labels)).per_sample_LN.mean()

    (gradient,) = torch.autograd.grad(loss(), weight)
    direction = torch.randn(weight.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            weight.add_(direction, alpha=sign * 1e-5)
        values.append(loss().item())
        with torch.no_grad():
            weight.sub_(direction, alpha=sign * 1e-5)
    slope = (values[0] - values[1]) / 2e-5
    assert slope == pytest.approx((gradient * direction).sum().item(), rel=1e-5)


def test_nothing_right_gives_the_cross_entropy_alone(tiny_heads: Models, make_step: Steps) -> None:
    model = tiny_heads(2).eval()
    wrong = model(make_step(model).images).mean(0).argmin(-1)
    losses = Drt()(make_step(model, labels=wrong, sigma=1e-6))
    torch.testing.assert_close(losses.per_sample_LN, losses.smoothed_LN)


def test_one_head_is_refused(tiny_heads: Models, make_step: Steps) -> None:
    with pytest.raises(ConfigError, match="drt needs 2 heads or more, not 1"):
        Drt()(make_step(tiny_heads(1)))


def test_every_head_has_an_adversary_of_its_own(tiny_heads: Models, make_step: Steps) -> None:
    """A head's losses are those of the head alone: nothing of the others enters but the regulariser."""
    model = tiny_heads(3).eval().double()
    data = {"images": torch.rand(5, 1, 4, 4, dtype=torch.float64), "labels": torch.arange(5) % 3}
    method = Drt(draws=2, attack_steps=3, attack_epsilon=0.5, attack_warmup=1)
    together = method(make_step(model, **data)).smoothed_LN
    noisy = Drt(draws=2)(make_step(model, **data)).smoothed_LN
    assert bool((together.mean(1) > noisy.mean(1)).all())  # attacked images are harder
    alone = SmoothAdv(draws=2, steps=3, epsilon=0.5, warmup=1, attack_target="heads")
    single = type(model)(model.trunk, [model.heads[0]], model.normalize)
    torch.testing.assert_close(together[0], alone(make_step(single, **data)).smoothed_LN[0])
    assert all(parameter.requires_grad for parameter in model.parameters())
