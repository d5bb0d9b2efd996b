"""Votes depend on the key alone, whatever is asked for at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.votes import VoteCounter
from smoothheads.data import Splits
from smoothheads.errors import SoundnessError
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.types import Phase, Pixels, Votes

from .engines.builders import make_counter, torch_counter


@pytest.fixture
def image(small_digits: Splits) -> Pixels:
    return small_digits.test.image(3)


@pytest.fixture
def engine(
    config: CertifyConfig, trained_like: Callable[..., MultiHead], small_digits: Splits, noise: Noise
) -> VoteCounter:
    return make_counter(config, trained_like(heads=3), small_digits.train.info, noise)


def added(parts: list[Votes]) -> Votes:
    return sum(parts[1:], start=parts[0])


def test_many_blocks_at_once_are_the_blocks_one_by_one(engine: VoteCounter, image: Pixels) -> None:
    backwards = [engine.votes(image, 3, Phase.ESTIMATION, block, 20) for block in (4, 3, 2, 1, 0)]
    at_once = engine.votes(image, 3, Phase.ESTIMATION, 0, 100)
    np.testing.assert_array_equal(at_once.counts, added(backwards).counts)
    assert at_once.n == 100


def test_a_last_block_is_cut_after_it_was_computed(engine: VoteCounter, image: Pixels) -> None:
    cut = engine.votes(image, 3, Phase.ESTIMATION, 1, 27)
    parts = [engine.votes(image, 3, Phase.ESTIMATION, 1, 20), engine.votes(image, 3, Phase.ESTIMATION, 2, 7)]
    np.testing.assert_array_equal(cut.counts, added(parts).counts)


def test_every_pass_has_the_same_size(noise: Noise, image: Pixels) -> None:
    sizes: set[int] = set()

    class Watched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sizes.add(len(x))
            return x.flatten(1)[:, :10]

    model = MultiHead(nn.Identity(), [Watched()])
    engine = torch_counter(model, noise)
    engine.votes(image, 3, Phase.ESTIMATION, 0, 1)  # probed with other sizes too
    sizes.clear()
    for count in (1, 20, 70, 130):
        assert engine.votes(image, 3, Phase.ESTIMATION, 0, count).n == count
    assert sizes == {20}


class Leaky(nn.Module):
    """Three classes and a little of something else."""

    def __init__(self, what: str, size: float) -> None:
        super().__init__()
        self.what, self.size = what, size

    def forward(self, x: Tensor) -> Tensor:
        logits = x.flatten(1)[:, :10]
        place = torch.arange(len(x))
        leaks = {
            "batch": x.mean(),
            "place": (place[:, None] % 7).float(),
        }
        return logits + self.size * leaks[self.what] * torch.eye(10)[0]


def test_a_pass_that_is_not_finite_where_nobody_looks_is_no_probe(noise: Noise, image: Pixels) -> None:
    """The last copy of the first block answers NaN and is not wanted; what follows must be probed."""

    class Late(Leaky):
        def forward(self, x: Tensor) -> Tensor:
            logits = super().forward(x)
            logits[19] += torch.nan if bool(x.min() < -5) else 0.0
            return logits

    model = MultiHead(nn.Identity(), [Late("batch", 1.0)])
    far: Any = Spoilt(noise)
    engine = torch_counter(model, far)
    engine.votes(image, 3, Phase.SELECTION, 0, 10)
    with pytest.raises(SoundnessError, match="put the network into eval mode"):
        engine.votes(image, 3, Phase.ESTIMATION, 0, 10)


class Spoilt:
    """Noise whose selection phase holds a very dark pixel."""

    def __init__(self, noise: Noise) -> None:
        self._noise, self.block_size = noise, noise.block_size

    def noisy(self, image: Pixels, index: int, phase: Phase, block: int) -> NDArray[np.float32]:
        copies = self._noise.noisy(image, index, phase, block)
        copies[0, 0, 0, 0] -= 100.0 * (phase == Phase.SELECTION)
        return copies


@pytest.mark.parametrize("what", ["batch", "place"])
def test_a_leak_of_more_than_a_rounding_is_refused(noise: Noise, image: Pixels, what: str) -> None:
    leaky = torch_counter(MultiHead(nn.Identity(), [Leaky(what, 1.0)]), noise)
    with pytest.raises(SoundnessError, match="put the network into eval mode"):
        leaky.votes(image, 3, Phase.ESTIMATION, 0, 100)


class FaultyLate(nn.Module):
    """Answers with a NaN for images that are brighter than most."""

    def forward(self, x: Tensor) -> Tensor:
        logits = x.flatten(1)[:, :10].clone()
        logits[x.flatten(1).amax(1) > 2.9, 4] = torch.nan
        return logits


def test_a_nan_in_any_block_is_found(noise: Noise, image: Pixels) -> None:
    model = MultiHead(nn.Identity(), [FaultyLate()])
    engine = torch_counter(model, noise)
    engine.votes(image, 3, Phase.ESTIMATION, 0, 20)
    with pytest.raises(SoundnessError, match=r"\d+ noisy samples of image 3 have NaN"):
        engine.votes(image, 3, Phase.ESTIMATION, 0, 2000)


class SameMemory(nn.Module):
    """Hands out its answers in one piece of memory, again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = torch.zeros(1, 20, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer[0].copy_(x.flatten(1)[:, :10])


class Bare(MultiHead):
    def forward(self, x_NCHW: Tensor) -> Tensor:
        logits: Tensor = self.heads[0](x_NCHW)
        return logits[None]


def test_answers_in_memory_that_is_used_again_are_counted_right(noise: Noise, image: Pixels) -> None:
    engine = torch_counter(Bare(nn.Identity(), [SameMemory()]), noise)
    at_once = engine.votes(image, 3, Phase.ESTIMATION, 0, 100)
    parts = [engine.votes(image, 3, Phase.ESTIMATION, block, 20) for block in range(5)]
    np.testing.assert_array_equal(at_once.counts, added(parts).counts)
