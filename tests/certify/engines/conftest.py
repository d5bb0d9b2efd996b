from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from smoothheads.certify.config import CertifyConfig
from smoothheads.data import Splits
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise, make_noise
from smoothheads.types import Grid


@pytest.fixture
def config() -> CertifyConfig:
    return CertifyConfig.of(0.5, seed=0, n0=20, n=100, block=20)


@pytest.fixture
def noise() -> Noise:
    return make_noise("grid", 0.5, Grid(16), 0, 20)


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


@pytest.fixture
def agreeing(trained_like: Callable[..., MultiHead]) -> MultiHead:
    """Four heads that often agree, but not always."""
    network = trained_like(heads=4)
    generator = torch.Generator().manual_seed(0)
    for head in network.heads[1:]:
        head.load_state_dict(network.heads[0].state_dict())
        for value in head.parameters():
            value.data += 0.1 * value.std() * torch.randn(value.shape, generator=generator)
    return network


WAITS: Final = {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::nonzero"}


class CpuRecorder:
    """What the CUDA driver does, on the CPU: notes the operations and the memory they work on, and carries
    them out again without the Python code around them. An operation that waits for the device is refused."""

    def __init__(self) -> None:
        self.recordings = 0
        self.replays = 0

    def __call__(self, work: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        work()
        with _Tape() as tape:
            results = work()
        self.recordings += 1

        def replay() -> None:
            self.replays += 1
            tape.replay()

        return results, replay


class _Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() in WAITS:
            raise RuntimeError("operation not permitted when stream is capturing\nlong trace")
        results = func(*args, **(kwargs or {}))
        self.steps.append((func, args, kwargs or {}, results))
        return results

    def replay(self) -> None:
        for func, args, kwargs, results in self.steps:
            for old, new in zip(_tensors(results), _tensors(func(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():  # neither a view nor in place
                    old.copy_(new)


def _tensors(results: Any) -> list[Tensor]:
    several = results if isinstance(results, (list, tuple)) else [results]
    return [each for each in several if isinstance(each, Tensor)]


@pytest.fixture
def recorder() -> CpuRecorder:
    return CpuRecorder()
