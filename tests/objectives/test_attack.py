from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from smoothheads.models.multihead import MultiHead
from smoothheads.objectives import AcrTargeted, CatRs, Method, SmoothAdv, SmoothMix
from smoothheads.objectives.attack import (
    FixedNoise,
    attack_loss,
    frozen,
    input_gradient,
    l2_norm,
    normalize_l2,
    project,
)
from smoothheads.objectives.method import Step

Models = Callable[[int], MultiHead]
Steps = Callable[..., Step]

ATTACKING: list[Method] = [
    SmoothMix(steps=2),
    SmoothAdv(draws=2, steps=2),
    SmoothAdv(draws=2, steps=2, attack="ddn"),
    CatRs(draws=2, steps=2),
    AcrTargeted(draws=2, steps=2, start=0),
]


class BoomError(Exception):
    pass


@contextmanager
def watched(model: nn.Module, *, boom: bool = False) -> Iterator[list[tuple[bool, bool]]]:
    """Notes (training, some parameter wants a gradient) of every forward; may fail in evaluation mode."""
    seen: list[tuple[bool, bool]] = []

    def note(module: nn.Module, _: object) -> None:
        seen.append((module.training, any(p.requires_grad for p in module.parameters())))
        if boom and not module.training:
            raise BoomError

    handle = model.register_forward_pre_hook(note)
    try:
        yield seen
    finally:
        handle.remove()


def state(model: nn.Module) -> list[Tensor]:
    return [value.clone() for value in model.state_dict().values()]


def run(method: Method, step: Step) -> None:
    method(step)


def mixed_settings(model: MultiHead) -> tuple[list[bool], list[bool]]:
    """Some modules in evaluation mode and some parameters without gradient, as fine-tuning has it."""
    model.heads[0].eval()
    model.trunk.get_submodule("0").requires_grad_(False)
    return [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]


@pytest.mark.parametrize("method", ATTACKING, ids=str)
def test_attacks_see_a_frozen_model_in_evaluation_mode(
    method: Method, tiny_heads: Models, make_step: Steps
) -> None:
    model = tiny_heads(2)
    before = mixed_settings(model)
    with watched(model) as seen:
        run(method, make_step(model, prepared=torch.full((12, 3), 1 / 3)))
    assert (False, False) in seen
    assert set(seen) == {(False, False), (True, True)}
    after = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
    assert after == before


@pytest.mark.parametrize("method", ATTACKING, ids=str)
def test_batchnorm_counts_the_training_forwards_alone(
    method: Method, tiny_heads: Models, make_step: Steps
) -> None:
    model = tiny_heads(2)
    with watched(model) as seen:
        run(method, make_step(model, prepared=torch.full((12, 3), 1 / 3)))
    counters = [v for k, v in model.state_dict().items() if k.endswith("num_batches_tracked")]
    assert {int(c) for c in counters} == {sum(training for training, _ in seen)}


@pytest.mark.parametrize("method", ATTACKING, ids=str)
def test_an_attack_that_fails_leaves_everything_as_it_was(
    method: Method, tiny_heads: Models, make_step: Steps
) -> None:
    model = tiny_heads(2)
    settings = mixed_settings(model)
    with watched(model, boom=True) as seen, pytest.raises(BoomError):
        run(method, make_step(model, prepared=torch.full((12, 3), 1 / 3)))
    after = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
    assert after == settings
    assert seen[-1] == (False, False)


def test_a_frozen_forward_leaves_every_buffer(tiny_heads: Models) -> None:
    model = tiny_heads(2)
    before = state(model)
    with frozen(model):
        model(torch.rand(5, 1, 4, 4))
    assert all(torch.equal(a, b) for a, b in zip(before, state(model), strict=True))


def test_training_after_an_attack_under_autocast_still_reaches_every_parameter(
    tiny_heads: Models, make_step: Steps
) -> None:
    """Autocast caches half-precision weights; an attack must not leave detached ones behind."""
    for method in ATTACKING:
        model = tiny_heads(2)
        step = make_step(model, prepared=torch.full((12, 3), 1 / 3))
        with torch.autocast("cpu", torch.bfloat16):
            losses = method(step)
        assert losses.per_sample_LN.dtype == losses.smoothed_LN.dtype == torch.float32
        losses.per_sample_LN.mean().backward()  # type: ignore[no-untyped-call]
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.heads.parameters())
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_loss_of_heads_and_of_the_ensemble(logits_LMNC: Tensor, labels_N: Tensor) -> None:
    p_LMN = torch.tensor(
        [[[4 / 5, 1 / 2], [4 / 5, 1 / 8]], [[1 / 4, 9 / 10], [1 / 9, 2 / 5]], [[1 / 10, 1 / 7]] * 2]
    ).double()
    heads = -p_LMN.mean(1).log().mean(0)
    torch.testing.assert_close(attack_loss(logits_LMNC, labels_N, "heads").float(), heads.float())
    p_label = logits_LMNC.mean(0).softmax(-1)[:, [0, 1], [0, 2]]
    torch.testing.assert_close(attack_loss(logits_LMNC, labels_N, "ensemble"), -p_label.mean(0).log())


def test_fixed_noise_answers_the_same_twice(tiny_heads: Models) -> None:
    model = tiny_heads(2).eval()
    view = FixedNoise(model, torch.randn(6, 1, 4, 4), 3)
    images = torch.rand(2, 1, 4, 4)
    assert view.logits(images).shape == (2, 3, 2, 3)
    assert torch.equal(view.logits(images), view.logits(images))


def test_geometry() -> None:
    batch = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.3, 0.4]]).view(3, 1, 2)
    assert l2_norm(batch).flatten().tolist() == pytest.approx([5, 0, 0.5])
    assert l2_norm(normalize_l2(batch)).flatten().tolist() == pytest.approx([1, 0, 1])
    assert l2_norm(project(batch, 2.0)).flatten().tolist() == pytest.approx([2, 0, 0.5])
    gradient = input_gradient(lambda x: x.square().flatten(1).sum(1), batch)
    torch.testing.assert_close(gradient, 2 * batch)
