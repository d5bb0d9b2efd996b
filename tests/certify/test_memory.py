"""Certifying needs the memory of a pass or two, however many samples are drawn."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_GROWTH = 8 * 2**20  # keeping a million 4x4 copies would take 64 MB, their logits 8 MB per head

# A process of its own, so that its peak is that of certification alone. The peak never falls: what a long
# run adds to it is what n costs.
SCRIPT = """
import resource
import numpy as np, torch
from torch import nn
from smoothheads.smoothed import Smoothed
from smoothheads.data import from_arrays
from smoothheads.models.multihead import MultiHead

torch.set_num_threads(1)
torch.manual_seed(0)
heads = [nn.Sequential(nn.Flatten(), nn.Linear(16, 2)) for _ in range(3)]
model = MultiHead(nn.Identity(), heads)
data = from_arrays(np.full((2, 1, 4, 4), 128, dtype=np.uint8), np.array([0, 1]), classes=2)
for n in (1_000, 500_000):
    smoothed = Smoothed(model, data.info, seed=0, sigma=0.25, n=n, block=2_000)
    assert [found.certificate.n for found in smoothed.certify(data)] == [n, n]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are counted in other units, or not at all")
def test_peak_memory_does_not_grow_with_n() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    few, many = map(int, done.stdout.split())
    assert few > 2**20  # kilobytes were turned into bytes
    assert many - few < MOST_GROWTH


# Larger images, so that keeping what fifty thousand samples need would take 50 MB for each form of it.
ENGINE = """
import resource, sys
import numpy as np, torch
from torch import nn
from smoothheads.smoothed import Smoothed
from smoothheads.data import from_arrays
from smoothheads.models.multihead import MultiHead

torch.set_num_threads(1)
torch.manual_seed(0)
model = MultiHead(nn.Identity(), [nn.Sequential(nn.Flatten(), nn.Linear(256, 2)) for _ in range(3)])
data = from_arrays(np.full((1, 1, 16, 16), 128, dtype=np.uint8), np.array([0]), classes=2)
for n in (1_000, 50_000):
    smoothed = Smoothed(model, data.info, seed=0, sigma=0.25, n=n, engine=sys.argv[1], block=500)
    assert [found.certificate.n for found in smoothed.certify(data)] == [n]
    assert smoothed.engine.describe()["engine"] == sys.argv[1]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are counted in other units, or not at all")
@pytest.mark.parametrize(
    "engine", ["torch", pytest.param("openvino", marks=pytest.mark.openvino), "onnxruntime"]
)
def test_peak_memory_of_every_engine_does_not_grow_with_n(engine: str) -> None:
    if engine != "torch":
        pytest.importorskip(engine, reason=f"{engine} is not installed")
    done = subprocess.run([sys.executable, "-c", ENGINE, engine], check=True, capture_output=True, text=True)
    few, many = map(int, done.stdout.split())
    assert few > 2**20  # kilobytes were turned into bytes
    assert many - few < 2 * MOST_GROWTH  # a second engine is built, and perhaps converted
