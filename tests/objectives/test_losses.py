from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothheads.objectives.losses import add_noise, cross_entropy, forward_heads


def test_the_smoothed_losses_of_the_worked_example(
    logits_LMNC: Tensor, labels_N: Tensor, smoothed_LN: Tensor
) -> None:
    torch.testing.assert_close(cross_entropy(logits_LMNC, labels_N).mean(1), smoothed_LN)


def test_copies_are_draw_major_and_unclipped() -> None:
    images = torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    copies = add_noise(images, 2.0, 5, torch.Generator().manual_seed(1))
    noise = copies.view(5, *images.shape) - images
    assert copies.min() < 0
    assert copies.max() > 1
    assert abs(noise.std().item() - 2) < 0.2
    assert not torch.equal(noise[0], noise[1])


def test_copies_depend_on_the_generator_alone() -> None:
    images = torch.zeros(2, 1, 3, 3)
    first, again, other = (
        add_noise(images, 1.0, 2, torch.Generator().manual_seed(seed)) for seed in (5, 5, 6)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_forward_gives_every_copy_its_place(fixed_logits: nn.Module, logits_LMNC: Tensor) -> None:
    assert torch.equal(forward_heads(fixed_logits, torch.zeros(4, 1, 2, 2), 2), logits_LMNC)


def test_half_precision_logits_are_computed_with_in_float32() -> None:
    class Half(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.full((1, len(images), 3), 2.0, dtype=torch.bfloat16)

    assert forward_heads(Half(), torch.zeros(4, 1, 2, 2), 2).dtype == torch.float32


def test_cross_entropy_is_that_of_each_copy(logits_LMNC: Tensor, labels_N: Tensor) -> None:
    one = F.cross_entropy(logits_LMNC[1, 1], labels_N, reduction="none")
    torch.testing.assert_close(cross_entropy(logits_LMNC, labels_N)[1, 1], one, rtol=0, atol=0)
