"""Fixtures that all tests share."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from smoothheads import checkpoint
from smoothheads.data import Splits, SubsetConfig, load, named
from smoothheads.models import ModelConfig, build
from smoothheads.models.multihead import MultiHead
from smoothheads.runs import certify
from smoothheads.training import RunConfig

sys.path.append(str(Path(__file__).resolve().parents[1]))  # `benchmarks` is not installed with the package


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the extra its tests are skipped."""
    for item in items:
        if item.get_closest_marker("openvino") and importlib.util.find_spec("openvino") is None:
            item.add_marker(pytest.mark.skip(reason="the extra openvino is not installed"))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _one_process() -> Iterator[None]:
    """Without --workers a test certifies in its own process: starting one per core takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certify, "cores", lambda: 1)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data beside the checkout; the test is skipped where there is none."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real data beside the checkout")
    return folder


@pytest.fixture(scope="session")
def small_digits() -> Splits:
    """120 training, 30 validation and all test digits."""
    return load(named("digits", subset=SubsetConfig(first=150), validation=0.2))


@pytest.fixture
def tiny_network() -> Callable[..., MultiHead]:
    """Fresh ResNet-8 networks for digits: `tiny_network(heads=3, seed=1)`."""

    def make(heads: int = 1, seed: int = 0, cut: str = "stage2") -> MultiHead:
        config = ModelConfig(arch="resnet8", heads=heads, cut=cut)
        return build(config, shape=(1, 8, 8), classes=10, mean=(0.3,), std=(0.4,), seed=seed)

    return make


@pytest.fixture
def network(tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits) -> Path:
    """The checkpoint of a fresh network with two heads, as users have it on the disk."""
    run = RunConfig(model=ModelConfig(arch="resnet8", heads=2))
    checkpoint.save(tmp_path / "network", tiny_network(heads=2), run, small_digits.train.info)
    return tmp_path / "network"
