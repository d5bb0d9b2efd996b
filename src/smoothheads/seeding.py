"""Named random streams: nothing depends on what was drawn before.

A stream is a pure function of the run's seed and a path such as ("noise", step), so resuming needs no stored
generator state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive(seed: int, *path: str | int) -> int:
    """Returns a 63-bit seed for the stream `path`; different paths give independent streams."""
    text = "/".join([str(seed), *(f"{type(part).__name__}:{part}" for part in path)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *path: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """Returns a torch generator at the start of the stream `path` of `seed`."""
    import torch

    return torch.Generator(device=device).manual_seed(derive(seed, *path))


@contextmanager
def drawing(seed: int, *path: str | int) -> Iterator[None]:
    """Lets torch's CPU generator follow the stream `path` of `seed` inside the block."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, *path))
        yield
