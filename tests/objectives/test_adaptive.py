"""Paces that read lambda off the smoothed losses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from smoothheads.objectives import TeachingConfig
from smoothheads.objectives.pace import FLOOR, Pace


def exponential(count: int) -> Tensor:
    """Losses at the quantiles of an exponential distribution of mean 1.2, one head."""
    ranks = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return -1.2 * torch.log1p(-ranks).unsqueeze(0)


def one_class(losses_LN: Tensor) -> Tensor:
    return torch.zeros(losses_LN.shape[1], dtype=torch.long)


def make(*, classes: int = 10, epochs: int = 5, **teaching: Any) -> Pace:
    return Pace(TeachingConfig(**teaching), classes=classes, epochs=epochs)


def lam_of(pace: Pace, epoch: int, losses_LN: Tensor) -> Tensor:
    """Lambda [L] of class 0, to which all samples belong."""
    return pace.update(epoch, losses_LN, one_class(losses_LN))[:, 0]


@pytest.mark.parametrize("fraction", [0.3, 0.5, 0.9])
def test_quantile_reaches_fraction(fraction: float) -> None:
    pace = make(pace="quantile", quantile_first=fraction, quantile_last=fraction, window=200, classes=1000)
    smoothed = exponential(200)
    for _ in range(300):
        lam = lam_of(pace, 3, smoothed)
    assert abs((smoothed <= lam).double().mean().item() - fraction) <= 1 / 200 + 1e-9


def test_quantile_fraction_grows_with_epochs() -> None:
    fractions = []
    for epoch in (2, 5):
        pace = make(pace="quantile", window=200, classes=1000)
        for _ in range(300):
            lam = lam_of(pace, epoch, exponential(200))
        fractions.append((exponential(200) <= lam).double().mean().item())
    assert fractions == pytest.approx([0.6, 0.9], abs=0.01)


def test_quantile_first_epoch_keeps_ln_classes() -> None:
    for epochs, moves in ((5, False), (1, True)):
        pace = make(pace="quantile", epochs=epochs)
        lam = [lam_of(pace, 1, exponential(50)).item() for _ in range(20)]
        assert (lam[-1] < math.log(10) - 0.1) == moves


def test_quantile_moves_slowly_within_range() -> None:
    pace = make(pace="quantile", quantile_first=0.5, quantile_last=0.5)
    easy = torch.full((2, 50), 1e-3)
    assert lam_of(pace, 2, easy).tolist() == pytest.approx([0.9 * math.log(10) + 0.1 * FLOOR] * 2)
    for _ in range(200):
        low = lam_of(pace, 2, easy)
    assert low.tolist() == pytest.approx([FLOOR] * 2)
    for _ in range(400):
        high = lam_of(pace, 2, easy + 50)
    assert high.tolist() == pytest.approx([math.log(10)] * 2)


def test_quantile_remembers_window_only() -> None:
    pace = make(pace="quantile", window=30)
    for value in range(10):
        lam_of(pace, 2, torch.full((3, 8), float(value)))
    assert pace.state["recent"].shape == (3, 30)
    assert pace.state["recent"].min() == 6


@pytest.mark.parametrize("fraction", [0.3, 0.6, 0.9])
def test_class_quantile_reaches_fraction_in_every_class(fraction: float) -> None:
    """The losses of class 1 are ten times those of class 0 and lie far above ln 2."""
    pace = make(
        pace="class-quantile", quantile_first=fraction, quantile_last=fraction, class_window=100, classes=2
    )
    losses = torch.cat([exponential(100), 10 * exponential(100)], dim=1)
    labels = torch.arange(200) // 100
    lam_LC = pace.update(1, losses, labels)
    easy = losses <= lam_LC[:, labels]
    for label in range(2):
        assert easy[:, labels == label].double().mean().item() == pytest.approx(fraction, abs=0.011)
    assert lam_LC[0, 1] > math.log(2)


def test_class_quantile_single_lambda_would_starve_hard_class() -> None:
    """With one quantile for all, the hard class of the test above has fewer easy samples."""
    losses = torch.cat([exponential(100), 10 * exponential(100)], dim=1)
    overall = torch.quantile(losses, 0.6)
    assert (losses[:, 100:] <= overall).double().mean() < 0.5 < (losses[:, :100] <= overall).double().mean()


def test_class_quantile_forgets_old_losses_of_a_class() -> None:
    pace = make(pace="class-quantile", class_window=4, classes=2, quantile_first=0.5, quantile_last=0.5)
    labels = torch.tensor([0, 0, 0, 1])
    for value in range(5):
        lam_LC = pace.update(2, torch.full((1, 4), float(value)), labels)
    assert pace.state["recent"][0].tolist() == [[3, 4, 4, 4], [1, 2, 3, 4]]
    assert lam_LC.tolist() == [[4, 2.5]]


def test_class_quantile_unseen_class_gets_ln_classes() -> None:
    pace = make(pace="class-quantile", classes=3)
    lam_LC = pace.update(1, torch.full((2, 4), 0.5), torch.tensor([0, 0, 1, 1]))
    assert lam_LC.tolist() == [pytest.approx([0.5, 0.5, math.log(3)])] * 2


def test_own_accuracy_quantile_is_mean_probability_of_truth() -> None:
    """Half of the samples have probability 1 and half almost 0, so the median separates them."""
    pace = make(pace="own-accuracy", classes=2, class_window=100)
    losses = torch.tensor([[0.0, 30.0] * 50])
    labels = torch.arange(100) // 2 % 2
    lam_LC = pace.update(1, losses, labels)
    assert pace.state["probability"].tolist() == pytest.approx([0.5])
    assert lam_LC.tolist() == [pytest.approx([15.0, 15.0])]
    for _ in range(100):
        lam_LC = pace.update(1, torch.full((1, 100), math.log(10)), labels)
    assert pace.state["probability"].tolist() == pytest.approx([0.1], abs=1e-3)


def test_own_accuracy_follows_each_head() -> None:
    pace = make(pace="own-accuracy", classes=2, class_window=100)
    spread = torch.linspace(0.1, 1, 100)
    labels = torch.arange(100) % 2
    lam_LC = pace.update(1, torch.stack([spread, 3 * spread]), labels)
    easy = [(spread * scale <= lam_LC[head, labels]).double().mean() for head, scale in enumerate((1, 3))]
    expected = [torch.exp(-scale * spread).mean() for scale in (1, 3)]
    assert easy == pytest.approx([value.item() for value in expected], abs=0.03)


@pytest.mark.parametrize("kind", ["quantile", "class-quantile", "own-accuracy"])
def test_pace_resumed_bit_for_bit(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [torch.rand(3, 16, generator=generator) * 3 for _ in range(12)]
    labels = torch.arange(16) % 10
    whole, first, second = (make(pace=kind, window=40, class_window=3) for _ in range(3))
    expected = [whole.update(2, batch, labels) for batch in batches]
    for batch in batches[:6]:
        first.update(2, batch, labels)
    second.state = first.state
    for batch in batches[6:]:
        first.update(2, batch, labels)  # must not change the state that was taken
    resumed = [second.update(2, batch, labels) for batch in batches[6:]]
    assert all(torch.equal(a, b) for a, b in zip(expected[6:], resumed, strict=True))
