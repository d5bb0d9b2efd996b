"""The liar suite: networks that would be given certificates that mean nothing, if nobody looked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothheads.certify.smoothed import Smoothed
from smoothheads.data import from_arrays
from smoothheads.errors import SoundnessError
from smoothheads.models import MultiHead

DATA = from_arrays(np.full((2, 1, 4, 4), 128, dtype=np.uint8), np.array([0, 1]), classes=3)


class Liar(nn.Module):
    """Logits for three classes, made by `answer` out of the flat batch."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.answer(self, x.flatten(1))
        return answer


def honest(_: Liar, x: Tensor) -> Tensor:
    return torch.stack([x.mean(1), x[:, 0], x[:, 1]], 1)


def nan(_: Liar, x: Tensor) -> Tensor:
    return torch.full((len(x), 3), float("nan"))


def one_infinity(_: Liar, x: Tensor) -> Tensor:
    logits = honest(_, x)
    logits[3, 1] = float("inf")
    return logits


def by_place(_: Liar, x: Tensor) -> Tensor:
    return honest(_, x) + torch.arange(len(x)).unsqueeze(1) * torch.tensor([1.0, 0.0, 0.0])


def by_neighbours(_: Liar, x: Tensor) -> Tensor:
    return honest(_, x) - x.mean() * torch.tensor([1.0, 0.0, 0.0])


def by_dropout(_: Liar, x: Tensor) -> Tensor:
    return nn.functional.dropout(honest(_, x), 0.5, training=True)


def by_counting(self: Liar, x: Tensor) -> Tensor:
    self.calls += 1
    return honest(self, x) + self.calls * torch.tensor([1.0, 0.0, 0.0])


def quietly_changing(self: Liar, x: Tensor) -> Tensor:
    self.calls += 1
    return honest(self, x)


def smoothed(answer: Any, **settings: Any) -> Smoothed:
    model = MultiHead(nn.Identity(), [Liar(answer)])
    return Smoothed(model, DATA.info, **({"sigma": 0.5, "n0": 20, "n": 100, "block": 20} | settings))


def test_an_honest_network_is_certified() -> None:
    assert len(list(smoothed(honest).certify(DATA))) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (nan, "20 noisy copies of image 0 with NaN or infinite logits"),
        (one_infinity, "1 noisy copies of image 0"),
        (by_place, "with its place in the batch"),
        (by_neighbours, "with its (place|neighbours) in the batch"),
        (by_dropout, "different logits on a second pass"),
        (by_counting, "different logits on a second pass"),
        (quietly_changing, "weights or buffers that changed"),
    ],
)
def test_liars_are_refused_with_the_reason(answer: Any, reason: str) -> None:
    with pytest.raises(SoundnessError, match=reason):
        list(smoothed(answer).certify(DATA))


def test_without_the_guard_a_network_of_nan_would_be_certified_as_class_0() -> None:
    assert torch.full((5, 3), float("nan")).argmax(1).tolist() == [0] * 5


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) * 1e-38


def test_a_network_that_overflows_only_in_bfloat16_is_refused_there() -> None:
    linear = nn.Linear(16, 3, bias=False)
    nn.init.constant_(linear.weight, 3.4e38)  # above the largest bfloat16, below the largest float32
    model = MultiHead(Scale(), [linear])
    settings: dict[str, Any] = {"sigma": 0.5, "n0": 20, "n": 100, "block": 20}
    assert len(list(Smoothed(model, DATA.info, **settings).certify(DATA))) == 2
    with pytest.raises(SoundnessError, match="NaN or infinite"):
        list(Smoothed(model, DATA.info, precision="bfloat16", **settings).certify(DATA))


def test_train_mode_batch_statistics_are_switched_off() -> None:
    """A network handed over in train mode is put into eval mode; one that insists is refused."""

    class Insists(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> Insists:
            return super().train(True)

    for norm, refused in ((nn.BatchNorm1d(16), False), (Insists(16), True)):
        head = nn.Sequential(nn.Flatten(), norm, nn.Linear(16, 3)).train()
        subject = Smoothed(MultiHead(nn.Identity(), [head]), DATA.info, sigma=0.5, n0=20, n=100, block=20)
        if refused:
            with pytest.raises(SoundnessError):
                list(subject.certify(DATA))
        else:
            assert len(list(subject.certify(DATA))) == 2
