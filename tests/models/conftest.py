"""Small networks for the tests of this stage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from smoothheads.models import ModelConfig, build
from smoothheads.models.multihead import MultiHead

Shape = tuple[int, int, int]
Make = Callable[..., MultiHead]


@pytest.fixture(scope="session")
def make() -> Make:
    def network(
        arch: str, heads: int, cut: str, *, shape: Shape = (3, 32, 32), classes: int = 10, seed: int = 0
    ) -> MultiHead:
        config = ModelConfig(arch=arch, heads=heads, cut=cut)
        mean, std = [0.4] * shape[0], [0.25] * shape[0]
        return build(config, shape=shape, classes=classes, mean=mean, std=std, seed=seed)

    return network
