from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from smoothheads.objectives import TeachingConfig
from smoothheads.objectives.losses import cross_entropy
from smoothheads.objectives.teaching import Teaching, logistic_weight

LAM = torch.full((3,), math.log(2), dtype=torch.float64)
losses = st.floats(0, 30)
lambdas = st.floats(0.01, 7)


def table(*rows: str) -> Tensor:
    return torch.tensor([[float(Fraction(v)) for v in row.split()] for row in rows], dtype=torch.float64)


def by_lambda(smoothed_LN: Tensor, lam_L: Tensor, config: TeachingConfig) -> Tensor:
    """The weights of a batch at given thresholds, one per head."""
    teaching = Teaching(config, classes=2, epochs=1)
    labels = torch.zeros(smoothed_LN.shape[1], dtype=torch.long)
    teaching.update(1, smoothed_LN, labels)
    teaching.lam_LC = lam_L.unsqueeze(1).expand(-1, 2)
    return teaching(smoothed_LN, labels)


def weights(smoothed_LN: Tensor, **settings: Any) -> Tensor:
    return by_lambda(smoothed_LN, LAM, TeachingConfig(**settings))


OFFICIAL = {"hard_weight_source": "student", "tie": "zero"}
WORKED = [
    ({}, table("1/4 1/3", "1 1/2", "3/8 1"), 0.8957393080401633),
    ({"shift": "self"}, table("1 1/2", "3/8 1", "1/4 1/3"), 0.5538848577001582),
    ({"weights": "hard"}, table("0 0", "1 0", "0 1"), 0.6229449363805614),
    ({"weights": "hard", "shift": "self"}, table("1 0", "0 1", "0 0"), 0.12232819584670007),
    ({"weights": "high"}, table("1 1", "15/26 1", "1 15/22"), 1.130552155849614),
    ({"weights": "high", "shift": "self"}, table("15/26 1", "1 15/22", "1 1"), 1.317262655773218),
    ({"weights": "uniform"}, table("1 1", "1 1", "1 1"), 1.3600863745795841),
    (OFFICIAL, table("12/13 1/2", "1 9/11", "1/4 1"), 0.9383983287450205),
]


@pytest.mark.parametrize(("settings", "expected", "loss"), WORKED, ids=[str(case[0]) for case in WORKED])
def test_the_worked_example(
    settings: dict[str, str], expected: Tensor, loss: float, smoothed_LN: Tensor
) -> None:
    weights_LN = weights(smoothed_LN, **settings)
    torch.testing.assert_close(weights_LN, expected, rtol=1e-12, atol=1e-12)
    assert (weights_LN * smoothed_LN).mean().item() == pytest.approx(loss, abs=1e-12)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (0.258942004101, 1.023586140556, 1.404689779464)),
        (OFFICIAL, (0.449562921656, 1.104853853427, 1.260778211152)),
    ],
)
def test_losses_per_head_of_the_worked_example(
    settings: dict[str, str], expected: tuple[float, ...], smoothed_LN: Tensor
) -> None:
    per_head = (weights(smoothed_LN, **settings) * smoothed_LN).mean(1)
    assert per_head.tolist() == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("settings", [{}, OFFICIAL, {"weights": "high"}])
def test_weights_are_constants_of_the_gradient(
    settings: dict[str, str], logits_LMNC: Tensor, labels_N: Tensor
) -> None:
    logits = logits_LMNC.requires_grad_()
    smoothed_LN = cross_entropy(logits, labels_N).mean(1)
    weights_LN = weights(smoothed_LN, **settings)
    (gradient,) = torch.autograd.grad((weights_LN * smoothed_LN).mean(), logits)
    residual = logits.softmax(-1) - torch.nn.functional.one_hot(labels_N, 3)
    torch.testing.assert_close(gradient, weights_LN[:, None, :, None] * residual / (2 * 2 * 3))


@given(smoothed=losses, lam=lambdas)
def test_the_sigmoid_form_is_the_printed_one(smoothed: float, lam: float) -> None:
    s, threshold = torch.tensor(smoothed, dtype=torch.float64), torch.tensor(lam, dtype=torch.float64)
    printed = (1 + math.exp(-lam)) / (1 + math.exp(smoothed - lam))
    assert logistic_weight(s, threshold).item() == pytest.approx(printed, abs=1e-14)


@given(a=losses, b=losses, lam=lambdas)
def test_weights_lie_in_0_1_and_fall_with_the_loss(a: float, b: float, lam: float) -> None:
    smoothed = torch.tensor([sorted((a, b))], dtype=torch.float64)
    easy, hard = by_lambda(smoothed, torch.tensor([lam], dtype=torch.float64), TeachingConfig(shift="self"))[
        0
    ].tolist()
    assert 0 < hard <= easy <= 1


@given(smoothed=losses, a=lambdas, b=lambdas)
def test_weights_grow_with_lambda(smoothed: float, a: float, b: float) -> None:
    strict, lenient = (
        by_lambda(
            torch.tensor([[smoothed]], dtype=torch.float64),
            torch.tensor([lam], dtype=torch.float64),
            TeachingConfig(shift="self"),
        ).item()
        for lam in sorted((a, b))
    )
    assert strict <= lenient + 1e-12


@pytest.mark.parametrize(("lam", "jump"), [(0.8, 0.7247), (1.2, 0.6506), (1.6, 0.6009), (math.log(10), 0.55)])
def test_the_weight_drops_where_the_loss_passes_lambda(lam: float, jump: float) -> None:
    just_above = torch.tensor(lam + 1e-9, dtype=torch.float64)
    assert logistic_weight(just_above, torch.tensor(lam)).item() == pytest.approx(jump, abs=5e-5)


def test_extreme_losses_stay_finite_in_float32() -> None:
    smoothed_LN = torch.tensor([[0.0, 1e4, 3e38], [1e-30, 500.0, 1.0]])
    weights_LN = by_lambda(smoothed_LN, torch.tensor([7.0, 0.1]), TeachingConfig())
    assert weights_LN.isfinite().all()
    assert weights_LN.dtype == torch.float32


@pytest.mark.parametrize(("tie", "weight"), [("easy", 1.0), ("zero", 0.0)])
@pytest.mark.parametrize("kind", ["soft", "hard", "high"])
def test_a_tie_counts_fully_or_not_at_all(tie: str, weight: float, kind: str) -> None:
    settings = TeachingConfig(weights=kind, tie=tie)  # type: ignore[arg-type]
    lam_L = torch.tensor([1.0, 1.0])
    assert by_lambda(torch.ones(2, 1), lam_L, settings).flatten().tolist() == [weight, weight]


def test_each_teacher_judges_by_its_own_lambda() -> None:
    smoothed_LN = torch.tensor([[1.0], [1.0]])
    weights_LN = by_lambda(smoothed_LN, torch.tensor([2.0, 0.5]), TeachingConfig(weights="hard"))
    assert weights_LN.flatten().tolist() == [0.0, 1.0]


def test_a_single_head_is_trained_plainly_unless_it_paces_itself() -> None:
    smoothed_LN, lam_L = torch.tensor([[0.1, 5.0]]), torch.tensor([1.0])
    assert by_lambda(smoothed_LN, lam_L, TeachingConfig()).tolist() == [[1.0, 1.0]]
    easy, hard = by_lambda(smoothed_LN, lam_L, TeachingConfig(shift="self"))[0].tolist()
    assert easy == 1
    assert hard < 0.1


@given(p=st.lists(st.floats(0.001, 0.999), min_size=1, max_size=8), lam=lambdas)
def test_an_easy_sample_has_a_mean_probability_of_at_least_exp_minus_lambda(
    p: list[float], lam: float
) -> None:
    smoothed = sum(-math.log(q) for q in p) / len(p)
    assert smoothed > lam or sum(p) / len(p) >= math.exp(-lam) - 1e-12
