"""The liar suite: networks that would be given certificates that mean nothing, if nobody looked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothheads.certify.soundness import weights_fingerprint
from smoothheads.data import from_arrays
from smoothheads.errors import SoundnessError
from smoothheads.models.multihead import MultiHead
from smoothheads.smoothed import Smoothed

CHANGED = "weights, buffers or attributes changed"
DATA = from_arrays(np.full((2, 1, 4, 4), 128, dtype=np.uint8), np.array([0, 1]), classes=3)


class Liar(nn.Module):
    """Logits for three classes, made by `answer` out of the flat batch."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(1))
        self.fleeting: Tensor
        self.register_buffer("fleeting", torch.zeros(1), persistent=False)
        self.kept = {"last": torch.zeros(1)}
        self.hidden = [nn.Linear(1, 1)]
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.answer(self, x.flatten(1))
        return answer


def honest(_: Liar, x: Tensor) -> Tensor:
    return torch.stack([x.mean(1), x[:, 0], x[:, 1]], 1)


def of_more_classes(_: Liar, x: Tensor) -> Tensor:
    """Class 3 does not exist; counted all the same, it would be a vote for class 0 of the next row."""
    return torch.cat([honest(_, x), torch.full((len(x), 1), 9.0)], 1)


def of_fewer_classes(_: Liar, x: Tensor) -> Tensor:
    return honest(_, x)[:, :2]


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


def by_neighbours_behind_an_offset(_: Liar, x: Tensor) -> Tensor:
    """Relative to the largest logit it is nothing, and yet it decides."""
    return by_neighbours(_, x) + 1e5


def by_place_behind_large_logits(_: Liar, x: Tensor) -> Tensor:
    """One sample in eight is so sure of itself that the others' logits are small beside its own."""
    surest = (x[:, 0] > 1.1)[:, None]
    return torch.where(surest, 1e6 * honest(_, x), by_place(_, x))


def by_dropout(_: Liar, x: Tensor) -> Tensor:
    return nn.functional.dropout(honest(_, x), 0.5, training=True)


def by_counting(self: Liar, x: Tensor) -> Tensor:
    self.calls += 1
    return honest(self, x) + self.calls * torch.tensor([1.0, 0.0, 0.0])


def quietly_changing(self: Liar, x: Tensor) -> Tensor:
    self.calls += 1
    return honest(self, x)


def quietly_setting(self: Liar, x: Tensor) -> Tensor:
    self.fleeting = self.fleeting + 1
    return honest(self, x)


def quietly_keeping(self: Liar, x: Tensor) -> Tensor:
    self.kept["last"] += x.mean()
    return honest(self, x)


def quietly_training(self: Liar, x: Tensor) -> Tensor:
    """A layer in a plain list: torch does not see it."""
    self.hidden[0].bias.data += 1
    return honest(self, x)


def quietly_counting(self: Liar, x: Tensor) -> Tensor:
    """Another network from the thousandth call on, which no probe of the first ones shows."""
    self.count += 1
    return honest(self, x) if self.count < 1000 else honest(self, x).flip(1)


def smoothed(answer: Any, **settings: Any) -> Smoothed:
    model = MultiHead(nn.Identity(), [Liar(answer)])
    return Smoothed(
        model, DATA.info, **({"seed": 0, "sigma": 0.5, "n0": 20, "n": 100, "block": 20} | settings)
    )


def over_the_data(subject: Smoothed) -> None:
    list(subject.certify(DATA))


def one_image(subject: Smoothed) -> None:
    subject.certify_image(DATA.image(0), 0)


def prediction(subject: Smoothed) -> None:
    subject.predict(DATA.image(0), 0)


def test_an_honest_network_is_certified() -> None:
    assert len(list(smoothed(honest).certify(DATA))) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (nan, "(20|100) noisy samples of image 0 have NaN or infinite logits"),
        (one_infinity, "[15] noisy samples of image 0"),
        (by_place, "with its place in the batch"),
        (by_neighbours, "with its (place|neighbours) in the batch"),
        (by_neighbours_behind_an_offset, "with its (place|neighbours) in the batch"),
        (by_place_behind_large_logits, "with its place in the batch"),
        (by_dropout, "gives different logits on a second pass"),
        (by_counting, "gives different logits on a second pass"),
        (of_more_classes, "logits of 4 classes, but the data have 3"),
        (of_fewer_classes, "logits of 2 classes, but the data have 3"),
        (quietly_changing, CHANGED),
        (quietly_setting, CHANGED),
        (quietly_keeping, CHANGED),
        (quietly_training, CHANGED),
        (quietly_counting, CHANGED),
    ],
)
@pytest.mark.parametrize("ask", [over_the_data, one_image, prediction])
def test_liars_are_refused_with_the_reason(answer: Any, reason: str, ask: Any) -> None:
    with pytest.raises(SoundnessError, match=reason):
        ask(smoothed(answer))


def test_an_offset_alone_is_no_lie() -> None:
    assert len(list(smoothed(lambda _, x: honest(_, x) + 1e3).certify(DATA))) == 2


def test_a_layer_that_was_used_before_may_have_filled_its_cache() -> None:
    def cached(self: Liar, x: Tensor) -> Tensor:
        self.kept.setdefault("scale", torch.ones(1))
        return honest(self, x) * self.kept["scale"]

    model = MultiHead(nn.Identity(), [Liar(cached)])
    model(torch.zeros(1, 1, 4, 4))
    assert Smoothed(model, DATA.info, seed=0, sigma=0.5, n0=20, n=100, block=20).predict(DATA.image(0), 0)


def test_networks_that_differ_in_what_is_not_saved_have_other_fingerprints() -> None:
    """Converted networks are kept under it: one would be certified as the other."""
    one, other = Liar(honest), Liar(honest)
    other.load_state_dict(one.state_dict())
    other.hidden[0].load_state_dict(one.hidden[0].state_dict())
    assert weights_fingerprint(one) == weights_fingerprint(other)
    other.fleeting += 1
    assert weights_fingerprint(one) != weights_fingerprint(other)


def test_votes_for_a_class_too_many_never_reach_another_aggregation() -> None:
    """Class 3 of the first aggregation was class 0 of the second, with a certificate of its own."""
    model = MultiHead(nn.Identity(), [Liar(of_more_classes) for _ in range(3)])
    subject = Smoothed(model, DATA.info, seed=0, sigma=0.5, n0=20, n=100, block=20)
    for ask in (subject.certify_image, subject.predict):
        with pytest.raises(SoundnessError, match="but the data have 3"):
            ask(DATA.image(0), 0)


@pytest.mark.parametrize("wrong", [3, -1])
def test_the_counter_refuses_a_class_outside_the_range(wrong: int) -> None:
    counter = smoothed(honest).certifier.counter
    assert counter._count(np.array([[0, 2, 2], [1, 1, 0]])).tolist() == [[1, 0, 2], [1, 2, 0]]
    with pytest.raises(SoundnessError, match="only classes 0 to 2"):
        counter._count(np.array([[0, 1, wrong], [0, 0, 0]]))


def test_without_the_guard_a_network_of_nan_would_be_certified_as_class_0() -> None:
    assert torch.full((5, 3), float("nan")).argmax(1).tolist() == [0] * 5


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) * 1e-38


def test_a_network_that_overflows_only_in_bfloat16_is_refused_there() -> None:
    linear = nn.Linear(16, 3, bias=False)
    nn.init.constant_(linear.weight, 3.4e38)  # above the largest bfloat16, below the largest float32
    model = MultiHead(Scale(), [linear])
    settings: dict[str, Any] = {"seed": 0, "sigma": 0.5, "n0": 20, "n": 100, "block": 20}
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
        subject = Smoothed(
            MultiHead(nn.Identity(), [head]), DATA.info, seed=0, sigma=0.5, n0=20, n=100, block=20
        )
        if refused:
            with pytest.raises(SoundnessError):
                list(subject.certify(DATA))
        else:
            assert len(list(subject.certify(DATA))) == 2
