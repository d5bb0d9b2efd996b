from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from smoothheads.objectives.gaussian import Gaussian
from smoothheads.objectives.method import Step


def test_losses_are_the_smoothed_losses(
    fixed_logits: nn.Module, labels_N: Tensor, smoothed_LN: Tensor, make_step: Callable[..., Step]
) -> None:
    step = make_step(fixed_logits, images=torch.rand(2, 1, 4, 4), labels=labels_N)
    losses = Gaussian(draws=2)(step)
    torch.testing.assert_close(losses.per_sample_LN, smoothed_LN)
    torch.testing.assert_close(losses.smoothed_LN, smoothed_LN)
