from __future__ import annotations

from collections.abc import Callable

import pytest

from smoothheads.certify.config import CertifyConfig
from smoothheads.data import Splits
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import NOISES, Noise
from smoothheads.types import Grid


@pytest.fixture
def config() -> CertifyConfig:
    return CertifyConfig(sigma=0.5, seed=0, n0=20, n=100, block=20)


@pytest.fixture
def noise() -> Noise:
    return NOISES.get("grid")().keyed(0.5, Grid(16), 0, 20)


@pytest.fixture
def trained_like(tiny_network: Callable[..., MultiHead], small_digits: Splits) -> Callable[..., MultiHead]:
    """Networks whose BatchNorms have seen data, as in `trained_like(heads=3)`."""
    from smoothheads.data.loader import plain_batches

    def make(heads: int = 1, seed: int = 0) -> MultiHead:
        network = tiny_network(heads=heads, seed=seed).train()
        for batch in plain_batches(small_digits.train, 40):
            network(batch.images)
        return network.eval()

    return make
