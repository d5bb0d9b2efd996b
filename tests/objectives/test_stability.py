from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.method import Step
from smoothheads.objectives.stability import Stability

Steps = Callable[..., Step]


class CleanThenNoisy(nn.Module):
    def __init__(self, clean: Tensor, noisy: Tensor) -> None:
        super().__init__()
        self.answers = nn.ParameterList([clean, noisy])
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        answer: Tensor = self.answers[self.calls - 1]
        return answer


def test_losses_and_gradients_of_both_answers(make_step: Steps) -> None:
    generator = torch.Generator().manual_seed(0)
    clean, noisy = (torch.randn(2, 4, 3, dtype=torch.float64, generator=generator) for _ in range(2))
    labels = torch.tensor([0, 1, 2, 1])
    model = CleanThenNoisy(clean, noisy)
    step = make_step(model, images=torch.rand(4, 1, 2, 2), labels=labels)
    losses = Stability(strength=3.0)(step)
    for head in range(2):
        soft = clean[head].softmax(-1)
        expected = F.cross_entropy(clean[head], labels, reduction="none") + 3 * F.cross_entropy(
            noisy[head], soft, reduction="none"
        )
        torch.testing.assert_close(losses.per_sample_LN[head], expected)
        torch.testing.assert_close(
            losses.smoothed_LN[head], F.cross_entropy(noisy[head], labels, reduction="none")
        )
    losses.per_sample_LN.sum().backward()  # type: ignore[no-untyped-call]

    def printed(clean: Tensor) -> Tensor:
        both = clean.log_softmax(-1).gather(-1, labels.expand(2, 4)[..., None]).sum()
        return -both - 3 * (clean.softmax(-1) * noisy.log_softmax(-1)).sum()

    reference = clean.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(printed(reference), reference)
    torch.testing.assert_close(model.answers[0].grad, gradient)


def test_clean_and_noisy_images_go_through_batchnorm_apart(
    tiny_heads: Callable[[int], MultiHead], make_step: Steps
) -> None:
    model = tiny_heads(1)
    Stability(draws=2)(make_step(model))
    counters = [v for k, v in model.state_dict().items() if k.endswith("num_batches_tracked")]
    assert {int(c) for c in counters} == {2}
