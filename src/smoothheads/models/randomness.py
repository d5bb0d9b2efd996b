"""Random initial weights that are a pure function of a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from smoothheads.seeding import derive


@contextmanager
def drawing(seed: int, *path: str | int) -> Iterator[None]:
    """Inside, torch's CPU generator follows the stream `path` of `seed`; outside, nobody notices."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, *path))
        yield
