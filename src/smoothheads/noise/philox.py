"""NumPy's Philox4x64-10 in torch integers, so that every device draws the same bits.

An int64 holds the bits of an unsigned word: sums and low products wrap around in two's complement, a shift to
the right is masked. Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from smoothheads.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

ROUNDS: Final = 10
_MULTIPLIERS: Final = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS: Final = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_HALF: Final = 2**32 - 1
_SIGN: Final = -(2**63)


class DevicePhilox:
    """The first `words` words of `numpy.random.Philox(key, counter).random_raw`, as int64 [words].

    The shape of every operation is fixed and nothing waits for the device, so a call can be recorded.
    """

    def __init__(self, words: int, device: torch.device) -> None:
        self.words = words
        self._ahead_N = torch.arange(1, -(-words // 4) + 1, device=device)  # NumPy counts, then computes
        self._multipliers_21 = _signed(_MULTIPLIERS, device)[:, None]
        steps = [[step * each for step in _KEY_STEPS] for each in range(ROUNDS)]
        self._key_steps_R21 = torch.stack([_signed(each, device) for each in steps])[:, :, None]

    def __call__(self, key_2: Tensor, counter_4: Tensor) -> Tensor:
        first, second, third, fourth = self._counters(counter_4)
        even_2N, odd_2N = torch.stack([first, third]), torch.stack([second, fourth])
        for key_21 in key_2[:, None] + self._key_steps_R21:
            high_2N, low_2N = _product(even_2N, self._multipliers_21)
            even_2N, odd_2N = high_2N.flip(0) ^ odd_2N ^ key_21, low_2N.flip(0)
        words_N4 = torch.stack([even_2N[0], odd_2N[0], even_2N[1], odd_2N[1]], 1)
        return words_N4.flatten()[: self.words]

    def _counters(self, counter_4: Tensor) -> list[Tensor]:
        """The four words of counter + 1, counter + 2, ..., carries included."""
        words = [counter_4[0] + self._ahead_N]
        carry_N = words[0] ^ _SIGN < counter_4[0] ^ _SIGN  # smaller as an unsigned number: it has wrapped
        for word in counter_4[1:]:
            words.append(word + carry_N)
            carry_N = carry_N & (words[-1] == 0)
        return words


def _product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """High and low word of the unsigned 128-bit products, from products of halves: none exceeds 64 bits."""
    a_high, a_low, b_high, b_low = _high(a), a & _HALF, _high(b), b & _HALF
    middle = a_high * b_low + _high(a_low * b_low)
    other = a_low * b_high + (middle & _HALF)
    return a_high * b_high + _high(middle) + _high(other), a * b


def _high(word: Tensor) -> Tensor:
    return (word >> 32) & _HALF


def _signed(words: list[int] | tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor([(word + 2**63) % 2**64 - 2**63 for word in words], device=device)
