"""Teaching that keeps every class: balanced weights and class-wise SuperLoss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from torch import Tensor

from smoothheads.errors import ConfigError
from smoothheads.objectives import TeachingConfig
from smoothheads.objectives.teaching import ClassStatistics, Teaching, superloss_weight


def make(classes: int = 3, **settings: Any) -> Teaching:
    all_settings: dict[str, Any] = {"pace": "fixed", "lambda_last": 1.0} | settings
    return Teaching(TeachingConfig(**all_settings), classes=classes, epochs=4)


def batch(seed: int, *, hard: float = 6.0, heads: int = 3, images: int = 60) -> tuple[Tensor, Tensor]:
    """Losses of 60 images in three classes; those of class 2 are `hard` times as large."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(images) % 3
    losses = torch.rand(heads, images, generator=generator, dtype=torch.float64) * 1.5
    return torch.where(labels == 2, hard * losses, losses), labels


def trained(teaching: Teaching, steps: int = 200, **kind: Any) -> tuple[Tensor, Tensor]:
    """The weights of many batches (those after the first quarter), and their labels."""
    weights, labels = [], []
    for seed in range(steps):
        losses, of_batch = batch(seed, **kind)
        teaching.update(1, losses, of_batch)
        weights.append(teaching(losses, of_batch))
        labels.append(of_batch)
    return torch.cat(weights[steps // 4 :], dim=1), torch.cat(labels[steps // 4 :])


def class_means(weights_LN: Tensor, labels_N: Tensor) -> Tensor:
    return torch.stack([weights_LN[:, labels_N == label].mean(1) for label in range(3)], dim=1)


def test_balance_gives_every_class_the_same_mean_weight() -> None:
    plain, labels = trained(make())
    balanced, _ = trained(make(balance="class"))
    assert class_means(plain, labels).amin(1).max() < 0.6 * class_means(plain, labels).amax(1).min()
    assert (class_means(balanced, labels) / class_means(balanced, labels).mean()).flatten().tolist() == (
        pytest.approx([1] * 9, abs=0.15)
    )


def test_balance_keeps_the_mean_weight_of_all_images() -> None:
    plain, _ = trained(make())
    balanced, _ = trained(make(balance="class"))
    assert balanced.mean().item() == pytest.approx(plain.mean().item(), rel=0.05)


def test_balance_keeps_the_order_within_a_class() -> None:
    teaching = make(balance="class", shift="self")
    trained(teaching)
    losses, labels = batch(1)
    weights = teaching(losses, labels)
    for label in range(3):
        order = losses[0, labels == label].argsort()
        assert (weights[0, labels == label][order].diff() <= 0).all()


def test_balance_equals_some_if_all_classes_are_equally_hard() -> None:
    """Every class has the same losses, so the balanced weights are those of eq. 5 to the last bit."""
    losses = torch.rand(3, 20, generator=torch.Generator().manual_seed(0)).repeat_interleave(3, dim=1) * 3
    labels = torch.arange(60) % 3
    some, balanced = make(), make(balance="class")
    for teaching in (some, balanced):
        teaching.update(1, losses, labels)
    torch.testing.assert_close(balanced(losses, labels), some(losses, labels), rtol=1e-6, atol=0)


def test_balance_is_clipped_at_four() -> None:
    """One image in a hundred of class 2 is easy: balance alone would give it about 67 times its weight."""
    weights, _ = trained(make(balance="class", weights="hard"), hard=60.0)
    assert weights.max().item() == 4.0
    assert weights.isfinite().all()


def test_balance_of_hard_weights_that_vanish() -> None:
    """No image of class 2 has any weight under `hard`: zero stays zero and nothing overflows."""
    teaching = make(balance="class", weights="hard")
    losses = torch.tensor([[0.1, 0.2, 9.0], [0.1, 0.2, 9.0]])
    teaching.update(1, losses, torch.arange(3))
    assert teaching(losses, torch.arange(3)).tolist() == [pytest.approx([2 / 3, 2 / 3, 0])] * 2


def test_balance_of_a_single_head_is_plain_training() -> None:
    teaching = make(balance="class")
    losses, labels = batch(0, heads=1)
    teaching.update(1, losses, labels)
    assert (teaching(losses, labels) == 1).all()


def test_balance_refuses_one_class() -> None:
    with pytest.raises(ConfigError, match="needs at least two classes, but the data set has 1"):
        make(classes=1, balance="class")


def test_balance_refuses_missing_class() -> None:
    with pytest.raises(ConfigError, match="have none of class 1"):
        make(balance="class").check_labels(np.array([5, 0, 2]))
    make().check_labels(np.array([5, 0, 2]))


@pytest.mark.parametrize(
    ("b", "weight"), [(-5.0, math.e), (-2 / math.e, math.e), (0.0, 1.0), (2 * math.e, 1 / math.e)]
)
def test_superloss_weight_closed_form(b: float, weight: float) -> None:
    """W(-1/e) = -1, W(0) = 0 and W(e) = 1."""
    got = superloss_weight(torch.tensor([b], dtype=torch.float64), torch.tensor(0.0), torch.tensor(1.0))
    assert got.item() == pytest.approx(weight, rel=1e-6)


def test_superloss_minimises_its_objective() -> None:
    """w minimises (S - tau) w + s log(w)^2, whose gradient (S - tau) + 2 s log(w) / w is 0."""
    losses = torch.linspace(-0.3, 8, 50, dtype=torch.float64)
    mean, deviation = torch.tensor(1.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
    weights = superloss_weight(losses, mean, deviation)
    torch.testing.assert_close(
        (losses - mean) + 2 * deviation * weights.log() / weights, torch.zeros_like(losses), rtol=0, atol=1e-6
    )


def test_superloss_mean_weight_is_one_in_every_class() -> None:
    weights, labels = trained(make(weights="superloss"))
    assert weights.mean().item() == pytest.approx(1, abs=0.1)
    assert class_means(weights, labels).flatten().tolist() == pytest.approx([1] * 9, abs=0.25)


def test_superloss_shift_is_circular() -> None:
    own, circular = make(weights="superloss", shift="self"), make(weights="superloss")
    losses, labels = batch(0)
    for teaching in (own, circular):
        teaching.update(1, losses, labels)
    assert torch.equal(circular(losses, labels), own(losses, labels).roll(1, 0))


def test_superloss_refuses_a_pace() -> None:
    with pytest.raises(ConfigError, match="has no lambda"):
        TeachingConfig(weights="superloss", pace="class-quantile")


def test_class_statistics_of_one_batch() -> None:
    statistics = ClassStatistics(3)
    statistics.update(torch.tensor([[1.0, 3.0, 10.0]]), torch.tensor([0, 0, 1]))
    assert statistics.mean().tolist() == [pytest.approx([2, 10, 14 / 3])]
    assert statistics.deviation()[0, :2].tolist() == pytest.approx([1, 1e-3])
    assert statistics.overall().tolist() == pytest.approx([14 / 3])


def test_class_statistics_keep_the_mean_of_a_missing_class() -> None:
    statistics = ClassStatistics(2)
    statistics.update(torch.tensor([[1.0, 3.0]]), torch.tensor([0, 1]))
    for _ in range(50):
        statistics.update(torch.tensor([[5.0]]), torch.tensor([0]))
    assert statistics.mean()[0].tolist() == pytest.approx([5, 3], abs=0.1)


@pytest.mark.parametrize("settings", [{"balance": "class"}, {"weights": "superloss"}])
def test_teaching_resumed_bit_for_bit(settings: dict[str, Any]) -> None:
    whole, first, second = (make(**settings) for _ in range(3))
    expected = trained(whole, 12)[0][:, -60:]
    trained(first, 6)
    second.load_state_dict(first.state_dict())
    for seed in range(6, 12):
        losses, labels = batch(seed)
        second.update(1, losses, labels)
    assert torch.equal(second(losses, labels), expected)


@pytest.mark.parametrize(
    "settings", [{"balance": "class"}, {"weights": "superloss"}, {"pace": "class-quantile"}]
)
def test_parts_of_a_batch_get_the_weights_of_the_whole(settings: dict[str, Any]) -> None:
    teaching = make(**settings)
    losses, labels = batch(0)
    teaching.update(1, losses, labels)
    parts = [teaching(losses[:, part], labels[part]) for part in (slice(0, 25), slice(25, 60))]
    assert torch.equal(torch.cat(parts, dim=1), teaching(losses, labels))


def plain_weights(settings: dict[str, Any], batches: list[tuple[Tensor, Tensor]]) -> np.ndarray:
    """The weights [L, N] of the last batch, by the formulas of the four rules in plain loops."""
    heads, classes, lam = len(batches[0][0]), 3, 1.0
    recent: dict[tuple[int, int], list[float]] = {}
    accuracy: dict[int, float] = {}
    # Decaying sums over batches of 1, S, S^2 (for SuperLoss) and of 1, w (for E_c[w]).
    of_losses, of_weights = np.zeros((3, heads, classes)), np.zeros((2, heads, classes))
    for losses_LN, labels_N in batches:
        weights = np.ones(losses_LN.shape)
        of_losses, of_weights = 0.95 * of_losses, 0.95 * of_weights
        for k in range(heads):
            p = np.exp(-losses_LN[k].numpy()).mean()
            accuracy[k] = p if k not in accuracy else 0.9 * accuracy[k] + 0.1 * p
            for loss, label in zip(losses_LN[k].tolist(), labels_N.tolist(), strict=True):
                of_losses[:, k, label] += 1, loss, loss**2
                recent[k, label] = [*recent.get((k, label), []), loss][-5:]
        for k in range(heads):
            teacher = k - 1  # the first head is taught by the last
            own = teacher % heads
            for n, label in enumerate(labels_N.tolist()):
                loss = losses_LN[own, n].item()
                if settings.get("weights") == "superloss":
                    count, total, squares = of_losses[:, own, label]
                    mean = total / count
                    b = (loss - mean) / max(np.sqrt(squares / count - mean**2), 1e-3)
                    # At -1/e, where W is -1, rounding can make scipy return nan.
                    log_weight = -special.lambertw(0.5 * max(-2 / math.e, b)).real
                    weights[k, n] = np.exp(np.nan_to_num(log_weight, nan=1))
                    continue
                if settings["pace"] == "own-accuracy":
                    lam = float(np.quantile(recent[own, label], accuracy[own]))
                elif settings["pace"] == "class-quantile":
                    lam = float(np.quantile(recent[own, label], 0.6))
                if loss > lam:
                    weights[k, n] = (1 + math.exp(-lam)) / (1 + math.exp(loss - lam))
            for n, label in enumerate(labels_N.tolist()):
                of_weights[:, k, label] += 1, weights[k, n]
        overall = of_weights[1].sum(1) / of_weights[0].sum(1)
        if settings.get("weights") == "superloss":
            weights /= overall[:, None]
        if settings.get("balance") == "class":
            by_class = of_weights[1] / of_weights[0]
            weights = np.minimum(weights * (overall[:, None] / by_class)[:, labels_N.numpy()], 4)
    return weights


@pytest.mark.parametrize(
    "settings",
    [
        {"pace": "fixed", "balance": "class"},
        {"pace": "class-quantile", "quantile_first": 0.6, "quantile_last": 0.6, "class_window": 5},
        {"pace": "own-accuracy", "class_window": 5},
        {"pace": "fixed", "weights": "superloss"},
        {"pace": "own-accuracy", "class_window": 5, "balance": "class"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_rules_equal_their_formulas_in_plain_loops(settings: dict[str, Any]) -> None:
    teaching = make(**settings)
    batches = [batch(seed, images=18) for seed in range(6)]
    for losses_LN, labels_N in batches:
        teaching.update(2, losses_LN, labels_N)
    weights_LN = teaching(*batches[-1]).numpy()
    np.testing.assert_allclose(weights_LN, plain_weights(settings, batches), rtol=1e-9)
