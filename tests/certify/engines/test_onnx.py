"""The ONNX file is the network, its engine counts what the others count, and PyTorch is not needed for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines.conversion import ONNX, ConversionCache, ConvertedModel
from smoothheads.certify.engines.onnx import convert
from smoothheads.certify.votes import VoteCounter
from smoothheads.errors import CheckpointError, ConfigError, SoundnessError
from smoothheads.models import aggregate
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import NOISES
from smoothheads.types import Grid, Phase

from .builders import any_info

pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
SHAPE = (1, 8, 8)
IMAGE = (np.arange(64, dtype=np.uint8) % 17).reshape(SHAPE)


@pytest.fixture
def made(tmp_path: Path, tiny_network: Callable[..., MultiHead]) -> tuple[MultiHead, Path]:
    model = tiny_network(heads=3)
    convert(model, SHAPE, tmp_path / "model.onnx")
    return model, tmp_path / "model.onnx"


def counter(path: Path, heads: int = 3, classes: int = 10) -> VoteCounter:
    config = CertifyConfig(sigma=0.5, seed=3, block=20, engine="onnxruntime")
    facts = {"format": ONNX, "heads": heads, "classes": classes, "head_weights": None}
    cache = ConversionCache(given=(ConvertedModel(path.parent, "0" * 64, facts),))
    return Certifier(None, any_info(SHAPE), config, cache=cache).counter


def test_it_votes_as_pytorch_does(made: tuple[MultiHead, Path]) -> None:
    model, path = made
    found = counter(path).votes(IMAGE, 5, Phase.ESTIMATION, 2, 50)
    noise = NOISES.get("grid")().keyed(0.5, Grid(16), 3, 20)
    samples = np.concatenate([noise.noisy(IMAGE, 5, Phase.ESTIMATION, block) for block in (2, 3, 4)])[:50]
    with torch.no_grad():
        classes_RN = aggregate.aggregate_votes(model.eval()(torch.from_numpy(samples)))
    expected = np.stack([np.bincount(row, minlength=10) for row in classes_RN])
    assert found.aggregations == aggregate.aggregations(3)
    assert np.abs(found.counts - expected).sum() <= 2  # a logit on the border may round otherwise
    assert found.n == 50


def test_votes_depend_on_the_key_alone(made: tuple[MultiHead, Path]) -> None:
    _, path = made
    whole = counter(path).votes(IMAGE, 5, Phase.ESTIMATION, 0, 60)
    parts = [counter(path).votes(IMAGE, 5, Phase.ESTIMATION, block, 20) for block in range(3)]
    assert whole.counts.tolist() == sum((part.counts for part in parts), np.zeros(1, np.int64)).tolist()


def test_what_is_no_network_is_refused(made: tuple[MultiHead, Path], tmp_path: Path) -> None:
    _, path = made
    torn = tmp_path / "torn" / "model.onnx"
    torn.parent.mkdir()
    torn.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="ONNX network"):
        counter(torn)
    with pytest.raises(SoundnessError, match="shape"):
        counter(path, heads=2).votes(IMAGE, 0, Phase.PILOT, 0, 20)


def test_a_network_that_looks_at_its_neighbours_is_refused(
    tmp_path: Path, tiny_network: Callable[..., MultiHead]
) -> None:
    class Mixing(torch.nn.Module):
        def __init__(self, inner: MultiHead) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.inner(x)
            return logits + x[:1].mean((1, 2, 3)).view(1, -1, 1) * torch.arange(10)

    path = tmp_path / "model.onnx"
    convert(Mixing(tiny_network(heads=3)).eval(), SHAPE, path)  # type: ignore[arg-type]
    with pytest.raises(SoundnessError, match="logits of a noisy image move"):
        counter(path).votes(IMAGE, 0, Phase.PILOT, 0, 20)


def test_what_onnx_cannot_express_is_refused(tmp_path: Path) -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            solution: torch.Tensor = torch.linalg.lstsq(x.flatten(1), x.flatten(1)).solution
            return solution[None]

    with pytest.raises(ConfigError, match="ONNX cannot express"):
        convert(Odd(), SHAPE, tmp_path / "odd.onnx")  # type: ignore[arg-type]


def test_it_needs_no_pytorch(made: tuple[MultiHead, Path]) -> None:
    script = f"""
import sys
class Without:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without())
from pathlib import Path
import numpy as np
from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines.conversion import ONNX, ConversionCache, ConvertedModel
from smoothheads.data.base import DataInfo
from smoothheads.types import Grid, Phase
config = CertifyConfig(sigma=0.5, seed=3, block=20, engine="onnxruntime")
info = DataInfo("any", Grid(16), (1, 8, 8), tuple("0123456789"), (0.0,), (1.0,))
facts = {{"format": ONNX, "heads": 3, "classes": 10, "head_weights": None}}
cache = ConversionCache(given=(ConvertedModel(Path({str(made[1].parent)!r}), "0" * 64, facts),))
counter = Certifier(None, info, config, cache=cache).counter
print(counter.votes(np.zeros((1, 8, 8), np.uint8), 0, Phase.PILOT, 0, 20).n)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "20", done.stderr
