"""Votes depend on the key alone, whatever is asked for at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothheads.certify.engines import Engine, TorchEngine, make_engine
from smoothheads.certify.engines import blocks as module
from smoothheads.config import CertifyConfig
from smoothheads.data import Splits
from smoothheads.errors import SoundnessError
from smoothheads.models import MultiHead
from smoothheads.noise import Noise
from smoothheads.types import Phase, Pixels, Votes

CPU = torch.device("cpu")


@pytest.fixture
def image(small_digits: Splits) -> Pixels:
    return small_digits.test.image(3)


@pytest.fixture
def engine(
    config: CertifyConfig, trained_like: Callable[..., MultiHead], small_digits: Splits, noise: Noise
) -> Engine:
    return make_engine(config, trained_like(heads=3), small_digits.train.info, noise)


def added(parts: list[Votes]) -> Votes:
    return sum(parts[1:], start=parts[0])


@pytest.mark.parametrize("together", [1, 3 * 10 * 20 * 2, 2**16])
def test_many_blocks_at_once_are_the_blocks_one_by_one(
    engine: Engine, image: Pixels, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOGETHER", together)
    backwards = [engine.votes(image, 3, Phase.ESTIMATION, block, 20) for block in (4, 3, 2, 1, 0)]
    at_once = engine.votes(image, 3, Phase.ESTIMATION, 0, 100)
    np.testing.assert_array_equal(at_once.counts, added(backwards).counts)
    assert at_once.n == 100


def test_a_last_block_is_cut_after_it_was_computed(engine: Engine, image: Pixels) -> None:
    cut = engine.votes(image, 3, Phase.ESTIMATION, 1, 27)
    parts = [engine.votes(image, 3, Phase.ESTIMATION, 1, 20), engine.votes(image, 3, Phase.ESTIMATION, 2, 7)]
    np.testing.assert_array_equal(cut.counts, added(parts).counts)


def test_scores_run_on_into_the_next_blocks(engine: Engine, image: Pixels) -> None:
    whole = engine.scores(image, 3, Phase.SCORES, 0, 50)
    parts = [engine.scores(image, 3, Phase.SCORES, block, min(20, 50 - 20 * block)) for block in range(3)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    np.testing.assert_allclose(whole.sum(1), 1)


class FaultyLate(nn.Module):
    """Answers with a NaN for images that are brighter than most."""

    def forward(self, x: Tensor) -> Tensor:
        logits = x.flatten(1)[:, :10].clone()
        logits[x.flatten(1).amax(1) > 2.9, 4] = torch.nan
        return logits


def test_a_nan_in_any_block_is_found(noise: Noise, image: Pixels) -> None:
    model = MultiHead(nn.Identity(), [FaultyLate()])
    engine = TorchEngine(model, noise, classes=10, shape=(1, 8, 8), device=CPU)
    engine.votes(image, 3, Phase.ESTIMATION, 0, 20)
    with pytest.raises(SoundnessError, match=r"\d+ noisy copies of image 3 with NaN"):
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
    engine = TorchEngine(Bare(nn.Identity(), [SameMemory()]), noise, classes=10, shape=(1, 8, 8), device=CPU)
    at_once = engine.votes(image, 3, Phase.ESTIMATION, 0, 100)
    parts = [engine.votes(image, 3, Phase.ESTIMATION, block, 20) for block in range(5)]
    np.testing.assert_array_equal(at_once.counts, added(parts).counts)
