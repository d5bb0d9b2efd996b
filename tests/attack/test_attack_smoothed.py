from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothheads.attack.ascend import ascend, decisive, move, squared_distance
from smoothheads.attack.settings import Loss
from smoothheads.certify.bounds import squared_grid_budget
from smoothheads.errors import SoundnessError
from smoothheads.models.aggregate import aggregate_votes, aggregations
from smoothheads.models.multihead import MultiHead
from smoothheads.types import Grid, Pixels

LOSSES: tuple[Loss, ...] = get_args(Loss)
IMAGE = np.random.default_rng(1).integers(60, 200, (1, 6, 6), dtype=np.uint8)


def options(**changes: Any) -> dict[str, Any]:
    usual = {"grid": Grid(255), "sigma": 0.25, "radius": 0.5, "draws": 8, "steps": 6}
    return usual | {"generator": torch.Generator().manual_seed(0)} | changes


def pgd(model: MultiHead, image: Pixels, label: int, **settings: Any) -> Pixels:
    """The attacked image on the grid, strictly closer than the radius."""
    direction = ascend(model, image, label, **settings)
    budget = squared_grid_budget(settings["radius"], settings["grid"].max_value)
    return move(image, direction, budget, settings["grid"])


def cosine(a: Any, b: Any) -> float:
    return float(np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


class Constant(nn.Module):
    """Answers without looking: the gradient is exactly zero."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([0 * x.flatten(1).sum(1), torch.ones(len(x))], 1)


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x.flatten(1).sum(1) * torch.nan, x.flatten(1).sum(1)], 1)


class Recorder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach().clone())
        return torch.stack([x.flatten(1).sum(1), -x.flatten(1).sum(1)], 1)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("share", [0.5, 0.99, 1.03, 1.5])
def test_a_linear_network_changes_its_answer_exactly_beyond_the_distance(
    half_space: Any, loss: Loss, share: float
) -> None:
    for position in range(len(half_space.data)):
        image, label = half_space.data.image(position), int(half_space.data.labels[position])
        radius = share * abs(half_space.distance[position])
        attacked = pgd(half_space.model, image, label, loss=loss, **options(radius=radius))
        squared = squared_distance(image, attacked)
        assert squared <= squared_grid_budget(radius, 255) < (255 * radius) ** 2
        assert squared > 0.99 * squared_grid_budget(radius, 255)
        assert (half_space.signed(attacked) > 0) == (label if share < 1 else 1 - label)


@pytest.mark.parametrize("loss", LOSSES)
def test_very_confident_networks_still_have_a_gradient(half_space: Any, loss: Loss) -> None:
    """Margins of some 60: the squared gradient is 0 in float32."""
    heads = half_space.model.heads
    for parameter in heads.parameters():
        parameter.data *= 15
    image, label = half_space.data.image(7), int(half_space.data.labels[7])
    found = ascend(half_space.model, image, label, loss=loss, **options(sigma=0.01, radius=0.1))
    assert cosine(found, -np.sign(half_space.distance[7]) * half_space.normal) > 0.999


def test_the_same_seed_gives_the_same_image(tiny_network: Any, small_digits: Any) -> None:
    model, image = tiny_network(heads=2), small_digits.test.image(0)

    def attack(seed: int) -> bytes:
        generator = torch.Generator().manual_seed(seed)
        settings = options(grid=Grid(16), radius=1.0, steps=3, generator=generator)
        return pgd(model, image, 3, **settings).tobytes()

    assert attack(1) == attack(1) != attack(2)


def test_smoothadv_keeps_its_draws_and_expected_ce_renews_them() -> None:
    kept = {}
    for loss in LOSSES:
        head = Recorder()
        pgd(MultiHead(nn.Identity(), [head]), IMAGE, 0, loss=loss, **options(steps=2, draws=4))
        shift = head.seen[1] - head.seen[0]  # the perturbation, which all draws share
        kept[loss] = bool(torch.allclose(shift, shift[:1].expand_as(shift), atol=1e-6))
    assert kept == {"smoothed": True, "expected-ce": False}


def test_each_rule_asks_its_own_heads() -> None:
    logits_LMNC = torch.randn(3, 4, 1, 5, generator=torch.Generator().manual_seed(0))
    mean = logits_LMNC.mean(0, keepdim=True)
    assert torch.equal(decisive(logits_LMNC, "ensemble"), mean)
    assert torch.equal(decisive(logits_LMNC, "consensus-2"), mean)
    assert torch.equal(decisive(logits_LMNC, "head-2"), logits_LMNC[1:2])
    assert torch.equal(decisive(logits_LMNC, "prefix-2"), logits_LMNC[:2].mean(0, keepdim=True))
    weights_L = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    weighted = decisive(logits_LMNC, "weighted", weights_L)[0, :, 0]
    torch.testing.assert_close(weighted, (2 * logits_LMNC[0] - logits_LMNC[2])[:, 0].double())
    assert decisive(logits_LMNC, "weighted", weights_L).shape == (1, 4, 1, 5)


def test_the_attacked_logits_answer_as_the_rule_does() -> None:
    logits_LNC = torch.randn(3, 200, 5, generator=torch.Generator().manual_seed(0))
    weights_L = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    names = aggregations(3, weighted=True)
    for aggregation, answers_N in zip(
        names, torch.from_numpy(aggregate_votes(logits_LNC, weights_L)), strict=True
    ):
        if not aggregation.startswith(("consensus", "vote", "margin")):
            attacked_NC = decisive(logits_LNC[:, :, None], aggregation, weights_L)[0, :, 0]
            assert torch.equal(attacked_NC.argmax(-1), answers_N), aggregation


def test_the_attack_follows_the_rule_that_was_certified() -> None:
    rng = np.random.default_rng(3)
    normals = [torch.from_numpy(rng.standard_normal(36)).float() for _ in range(3)]

    class Linear(nn.Module):
        def __init__(self, normal: Tensor) -> None:
            super().__init__()
            self.normal = nn.Parameter(normal)

        def forward(self, x: Tensor) -> Tensor:
            score = (x.flatten(1) - 0.5) @ self.normal
            return torch.stack([score, -score], 1)

    model = MultiHead(nn.Identity(), [Linear(normal) for normal in normals])
    expected = {
        "head-2": normals[1],
        "prefix-2": normals[0] + normals[1],
        "ensemble": normals[0] + normals[1] + normals[2],
    }
    for aggregation, normal in expected.items():
        found = ascend(model, IMAGE, 0, aggregation=aggregation, **options(radius=0.2))
        assert cosine(found, -normal.numpy()) > 0.999


def test_without_a_gradient_the_direction_is_random() -> None:
    model = MultiHead(nn.Identity(), [Constant()])
    attacked = pgd(model, IMAGE, 1, **options(radius=0.3))
    assert 0.99 * squared_grid_budget(0.3, 255) < squared_distance(IMAGE, attacked) < (255 * 0.3) ** 2


def test_a_gradient_that_is_not_finite_is_refused() -> None:
    with pytest.raises(SoundnessError, match="gradient of the attack is not finite"):
        pgd(MultiHead(nn.Identity(), [Broken()]), IMAGE, 0, **options())


def test_the_model_is_given_back_as_it_was_also_after_an_error(half_space: Any) -> None:
    model = half_space.model.train()
    model.heads[0].eval()
    model.heads[1].normal.requires_grad_(False)

    def settings() -> list[bool]:
        modes = [module.training for module in model.modules()]
        return [*modes, *(parameter.requires_grad for parameter in model.parameters())]

    state = {name: value.clone() for name, value in model.state_dict().items()}
    before = settings()
    pgd(model, IMAGE, 0, **options())

    def fail(*_: object) -> None:
        assert settings() != before
        raise RuntimeError("boom")

    handle = model.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="boom"):
        pgd(model, IMAGE, 0, **options())
    handle.remove()
    assert settings() == before
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
