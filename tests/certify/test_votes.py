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
from smoothheads.certify.votes import Request, VoteCounter
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


@pytest.fixture(params=[2, 3, 8])
def wide(
    request: pytest.FixtureRequest,
    config: CertifyConfig,
    trained_like: Callable[..., MultiHead],
    small_digits: Splits,
    noise: Noise,
) -> VoteCounter:
    settings = config.changed(blocks_per_pass=request.param)
    return make_counter(settings, trained_like(heads=3), small_digits.train.info, noise)


def test_requests_of_several_images_share_passes_and_get_the_votes_they_get_alone(
    wide: VoteCounter, small_digits: Splits
) -> None:
    keys = [(3, 0, 20), (5, 7, 33), (3, 1, 100), (8, 0, 1), (5, 2, 60)]
    requests = [
        Request(small_digits.test.image(index), index, Phase.ESTIMATION, block, count)
        for index, block, count in keys
    ]
    for each, found in zip(requests, wide.votes_of(requests), strict=True):
        alone = wide.votes(each.image, each.index, each.phase, each.block, each.count)
        np.testing.assert_array_equal(found.counts, alone.counts)
        assert (found.counts.sum(1) == each.count).all()


def test_every_pass_has_the_same_size(noise: Noise, image: Pixels) -> None:
    sizes: set[int] = set()

    class Watched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sizes.add(len(x))
            return x.flatten(1)[:, :10]

    model = MultiHead(nn.Identity(), [Watched()])
    engine = torch_counter(model, noise, blocks_per_pass=4)
    engine.votes(image, 3, Phase.ESTIMATION, 0, 1)  # probed with other sizes too
    sizes.clear()
    for count in (1, 20, 70, 130):
        assert engine.votes(image, 3, Phase.ESTIMATION, 0, count).n == count
    assert sizes == {4 * 20}


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
            "block before": x.flatten(1).roll(20, 0).mean(1, keepdim=True),
            "place": (place[:, None] % 7).float(),
            "place in the block": (place[:, None] % 20).float(),
            "half": (place[:, None] >= 40).float(),
        }
        return logits + self.size * leaks[self.what] * torch.eye(10)[0]


def leaky(noise: Noise, what: str, size: float, blocks_per_pass: int) -> VoteCounter:
    model = MultiHead(nn.Identity(), [Leaky(what, size)])
    return torch_counter(model, noise, blocks_per_pass=blocks_per_pass)


@pytest.mark.parametrize("what", ["batch", "block before", "place", "half"])
def test_a_leak_of_the_size_of_a_rounding_is_refused_if_there_are_other_blocks(
    noise: Noise, image: Pixels, what: str
) -> None:
    assert leaky(noise, what, 1e-5, 1).votes(image, 3, Phase.ESTIMATION, 0, 100).n == 100
    with pytest.raises(
        SoundnessError,
        match=r"(other blocks of the same pass|the place of its block): set blocks_per_pass to 1",
    ):
        leaky(noise, what, 1e-5, 4).votes(image, 3, Phase.ESTIMATION, 0, 100)


def test_the_place_in_its_own_block_is_always_the_same(noise: Noise, image: Pixels) -> None:
    assert leaky(noise, "place in the block", 1e-5, 4).votes(image, 3, Phase.ESTIMATION, 0, 100).n == 100


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


def test_a_leak_that_is_no_rounding_is_refused_as_ever(noise: Noise, image: Pixels) -> None:
    for blocks_per_pass in (1, 4):
        with pytest.raises(SoundnessError, match="put the network into eval mode"):
            leaky(noise, "batch", 1.0, blocks_per_pass).votes(image, 3, Phase.ESTIMATION, 0, 100)


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


def test_a_nan_is_told_of_the_image_that_has_it(noise: Noise, image: Pixels) -> None:
    model = MultiHead(nn.Identity(), [FaultyLate()])
    engine = torch_counter(model, noise, blocks_per_pass=4)
    dark = np.zeros_like(image)
    requests = [
        Request(dark, 1, Phase.ESTIMATION, 0, 20),
        Request(np.full_like(image, 16), 2, Phase.ESTIMATION, 0, 20),
        Request(dark, 3, Phase.ESTIMATION, 0, 20),
    ]
    with pytest.raises(SoundnessError, match=r"\d+ noisy samples of image 2 have NaN"):
        engine.votes_of(requests)


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
