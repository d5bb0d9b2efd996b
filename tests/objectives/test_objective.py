from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothheads.models.multihead import MultiHead
from smoothheads.objectives import DiversityConfig, Gaussian, ObjectiveConfig, SmoothMix, TeachingConfig
from smoothheads.objectives.losses import add_noise
from smoothheads.objectives.method import Step
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

        copies = add_noise(step.images, step.sigma, draws, torch.Generator().manual_seed(seed))
        expected = F.cross_entropy(plain(copies)[0], step.labels.repeat(draws))
        plain_sgd.zero_grad()
        expected.backward()  # type: ignore[no-untyped-call]
        plain_sgd.step()
        torch.testing.assert_close(loss, expected)
    for mine, theirs in zip(ours.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_uniform_heads_minimise_the_mean_over_heads(tiny_heads: Models, make_step: Steps) -> None:
    terms = objective(teaching=TeachingConfig(weights="uniform"))(make_step(tiny_heads(3)))
    torch.testing.assert_close(terms.loss.detach(), terms.metrics["head_loss"].mean())
    assert terms.metrics["mean_weight"].tolist() == [1.0, 1.0, 1.0]


def test_what_is_reported_is_per_head_and_detached(tiny_heads: Models, make_step: Steps) -> None:
    terms = objective()(make_step(tiny_heads(3)))
    assert len(terms.metrics) == 5
    for value in terms.metrics.values():
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
    assert terms.loss.dtype == terms.metrics["lambda"].dtype == torch.float32


@pytest.mark.parametrize("pace", ["quantile", "class-quantile", "own-accuracy"])
def test_a_resumed_objective_goes_on_bit_for_bit(pace: str, tiny_heads: Models, make_step: Steps) -> None:
    def losses(train: Objective, seeds: range) -> list[float]:
        model = tiny_heads(3)
        return [
            train(make_step(model, epoch=2, generator=torch.Generator().manual_seed(seed))).loss.item()
            for seed in seeds
        ]

    teaching = TeachingConfig(pace=pace, window=30)  # type: ignore[arg-type]
    whole, first, second = (objective(teaching=teaching) for _ in range(3))
    losses(whole, range(5))
    losses(first, range(5))
    second.teaching.load_state_dict(first.teaching.state_dict())
    assert losses(whole, range(5, 9)) == losses(second, range(5, 9))


def test_the_published_code_leaves_the_mixing_term_unweighted(tiny_heads: Models, make_step: Steps) -> None:
    def parts(preset: str) -> tuple[float, float, float]:
        """Loss, and its weighted and unweighted parts, from one head's point of view."""
        train = objective(preset=preset, method=SmoothMix(mask=False), teaching=TeachingConfig(pace="fixed"))
        terms = train(make_step(tiny_heads(3), epoch=10))
        losses = train.method(make_step(tiny_heads(3), epoch=10))
        weights_LN = train.teaching(losses.smoothed_LN, torch.arange(12) % 3)
        rest = losses.unweighted_LN
        unweighted = 0.0 if rest is None else rest.mean().item()
        return terms.loss.item(), (weights_LN * losses.per_sample_LN).mean().item(), unweighted

    loss, weighted, unweighted = parts("official-2022")
    assert unweighted > 0
    assert loss == pytest.approx(weighted + unweighted)
    loss, weighted, unweighted = parts("official")
    assert unweighted == 0
    assert loss == pytest.approx(weighted)


def test_a_tie_costs_nothing_in_the_authors_code(make_step: Steps) -> None:
    """Two classes, zero logits, lambda = ln 2: the smoothed loss is lambda itself."""

    class Undecided(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.zeros(2, len(images), 2)

    lam = float(F.cross_entropy(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long)))
    for preset, expected in (("paper", lam), ("official", 0.0)):
        train = objective(preset=preset, teaching=TeachingConfig(pace="fixed", lambda_last=lam))
        step = make_step(Undecided(), labels=torch.arange(12) % 2)
        assert train(step).loss.item() == pytest.approx(expected)


def test_the_effective_share_of_images(
    smoothed_LN: Tensor, labels_N: Tensor, make_step: Steps, fixed_logits: nn.Module
) -> None:
    teaching = TeachingConfig(pace="fixed", lambda_last=math.log(2))
    step = make_step(fixed_logits, images=torch.rand(2, 1, 4, 4), labels=labels_N)
    terms = objective(method=Gaussian(draws=2), teaching=teaching)(step)
    pairs = [(1 / 4, 1 / 3), (1, 1 / 2), (3 / 8, 1)]
    expected = [(a + b) ** 2 / (a * a + b * b) / 2 for a, b in pairs]
    assert terms.metrics["effective_share"].tolist() == pytest.approx(expected)
    assert terms.loss.item() == pytest.approx(0.8957393080401633, abs=1e-12)


def test_hard_weights_that_are_all_zero_still_give_numbers(tiny_heads: Models, make_step: Steps) -> None:
    teaching = TeachingConfig(weights="hard", pace="fixed", lambda_last=1e-6)
    terms = objective(teaching=teaching)(make_step(tiny_heads(2)))
    assert terms.loss.item() == 0
    assert terms.metrics["effective_share"].tolist() == [0, 0]


def test_the_sum_over_heads_is_their_number_times_the_mean(tiny_heads: Models, make_step: Steps) -> None:
    model = tiny_heads(3)
    mean, total = (objective(over_heads=kind)(make_step(model)).loss for kind in ("mean", "sum"))
    torch.testing.assert_close(total, 3 * mean)
