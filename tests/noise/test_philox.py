"""Philox in torch integers against NumPy's, word by word, and against the authors' known answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.random import Philox

from smoothheads.noise.base import philox_key
from smoothheads.noise.philox import DevicePhilox
from smoothheads.types import Phase

CPU = torch.device("cpu")
TOP = 2**64 - 1

word = st.one_of(st.integers(0, TOP), st.sampled_from([0, 1, TOP, TOP - 1, 2**63 - 1, 2**63]))


def drawn(key: list[int], counter: list[int], words: int) -> list[int]:
    key_2, counter_4 = (
        torch.from_numpy(np.array(each, dtype=np.uint64).view(np.int64)) for each in (key, counter)
    )
    found = DevicePhilox(words, CPU)(key_2, counter_4)
    assert (found.dtype, found.shape) == (torch.int64, (words,))
    values: list[int] = found.numpy().view(np.uint64).tolist()
    return values


def numpys(key: list[int], counter: list[int], words: int) -> list[int]:
    bits = Philox(key=np.array(key, dtype=np.uint64), counter=np.array(counter, dtype=np.uint64))
    values: list[int] = bits.random_raw(words).tolist()
    return values


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        (
            [0, 0, 0, 0],
            [0, 0],
            [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B],
        ),
        (
            [TOP] * 4,
            [TOP] * 2,
            [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0],
        ),
        (
            [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89],
            [0x452821E638D01377, 0xBE5466CF34E90C6C],
            [0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6],
        ),
    ],
)
def test_known_answers_of_random123(counter: list[int], key: list[int], answer: list[int]) -> None:
    """Counters of the answers themselves, so one less than what NumPy would be given."""
    number = sum(each << 64 * place for place, each in enumerate(counter))
    before = [(number - 1) % 2**256 >> 64 * place & TOP for place in range(4)]
    assert drawn(key, before, 4) == answer


def test_the_published_vector_of_a_block() -> None:
    key = philox_key(7, 20, Phase.ESTIMATION, 3).tolist()
    assert drawn(key[:2], key[2:], 3) == [9431809411864981488, 6303944394427810682, 564067925375673155]


@settings(max_examples=150, deadline=None)
@given(
    key=st.lists(word, min_size=2, max_size=2),
    counter=st.lists(word, min_size=4, max_size=4),
    words=st.integers(1, 70),
)
@example(key=[1, 2], counter=[TOP - 1, 0, 0, 0], words=9)
@example(key=[1, 2], counter=[TOP - 1, TOP, 5, 0], words=9)
@example(key=[1, 2], counter=[TOP - 1, TOP, TOP, 5], words=9)
@example(key=[1, 2], counter=[TOP, TOP, TOP, TOP], words=9)
@example(key=[1, 2], counter=[2**63 - 2, 0, 0, 0], words=9)
def test_every_word_is_numpys(key: list[int], counter: list[int], words: int) -> None:
    assert drawn(key, counter, words) == numpys(key, counter, words)


def test_a_long_stream_is_numpys() -> None:
    key, counter = [TOP - 12, 3**40], [TOP - 1000, TOP, 7, 0]
    assert drawn(key, counter, 100_003) == numpys(key, counter, 100_003)
