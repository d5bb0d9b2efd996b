from __future__ import annotations

import pytest
import torch
from torch import Tensor

from smoothheads.models import ModelConfig, build
from smoothheads.objectives.objective import cosine_penalty, cosines


def heads() -> list[list[Tensor]]:
    """Each head's vector (1, 0, 2), (2, 1, 0), (0, 3, 1) in two pieces."""
    vectors = torch.tensor([[1, 0, 2], [2, 1, 0], [0, 3, 1]], dtype=torch.float64)
    return [[v[:1].clone().requires_grad_(), v[1:].clone().requires_grad_()] for v in vectors]


def test_the_worked_example() -> None:
    assert cosine_penalty(heads()).item() == pytest.approx(4 / 25 + 4 / 50 + 9 / 50, abs=1e-14)


def test_the_length_of_a_head_does_not_matter() -> None:
    long = [[1000 * p for p in head] for head in heads()]
    torch.testing.assert_close(cosine_penalty(long), cosine_penalty(heads()))


def test_the_gradient_is_the_derivative() -> None:
    pieces = heads()

    def penalty(*flat: Tensor) -> Tensor:
        return cosine_penalty([flat[:2], flat[2:4], flat[4:]])

    assert torch.autograd.gradcheck(penalty, [p for head in pieces for p in head])


def test_the_gradient_moves_along_no_head() -> None:
    """The penalty depends on directions alone, so its gradient is orthogonal to every head."""
    pieces = heads()
    cosine_penalty(pieces).backward()  # type: ignore[no-untyped-call]
    for head in pieces:
        inner = sum((p.grad * p.detach()).sum() for p in head if p.grad is not None)
        assert float(inner) == pytest.approx(0, abs=1e-14)


def test_orthogonal_and_equal_heads() -> None:
    assert cosines([[torch.tensor([1.0, 0.0])], [torch.tensor([0.0, 2.0])]]).tolist() == [0.0]
    equal = [[torch.tensor([3.0, 4.0])]] * 3
    assert cosine_penalty(equal).item() == pytest.approx(3)


def test_at_the_start_the_constraint_acts_on_batchnorm_alone() -> None:
    """Scales of 1 are common to all heads: the cosine is their number over the squared length of a head."""
    config = ModelConfig(arch="resnet20", heads=5)
    network = build(config, shape=(3, 32, 32), classes=10, mean=(0.5,) * 3, std=(0.25,) * 3, seed=0)
    with torch.no_grad():
        assert cosines(network.head_weights()).abs().max() < 0.02
        assert cosines(network.head_parameters()).mean().item() == pytest.approx(0.367, abs=0.01)
        assert cosine_penalty(network.head_parameters()).item() == pytest.approx(1.344, abs=0.06)


def test_the_printed_form_has_one_power_of_each_norm_and_both_orders_of_a_pair() -> None:
    """Products 3 with norms 3 and 1, twice: 2 * 9 / 3."""
    heads = [[torch.tensor([3.0, 0.0])], [torch.tensor([1.0, 0.0])]]
    assert float(cosine_penalty(heads, "printed")) == pytest.approx(6.0)
    orthogonal = [[torch.tensor([1.0, 0.0])], [torch.tensor([0.0, 2.0])]]
    assert float(cosine_penalty(orthogonal, "printed")) == 0
