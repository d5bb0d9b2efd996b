"""Certifying needs the memory of one block, however many samples are drawn."""

from __future__ import annotations

import subprocess
import sys

MOST_GROWTH = 8 * 2**20  # keeping a million 4x4 copies would take 64 MB, their logits 8 MB and more per head

# A process of its own, so that its peak is that of certification alone. The peak never falls: what the long
# run adds to it is what n costs.
SCRIPT = """
import resource
import numpy as np, torch
from torch import nn
from smoothheads.certify.smoothed import Smoothed
from smoothheads.data import DataInfo
from smoothheads.models.multihead import MultiHead
from smoothheads.types import Grid

torch.set_num_threads(1)
torch.manual_seed(0)
heads = [nn.Sequential(nn.Flatten(), nn.Linear(16, 2)) for _ in range(3)]
model = MultiHead(nn.Identity(), heads)
info = DataInfo("tiny", Grid(255), (1, 4, 4), ("left", "right"), (0.0,), (1.0,))
image = np.full((1, 4, 4), 128, dtype=np.uint8)
for n in (1_000, 1_000_000):
    smoothed = Smoothed(model, info, sigma=0.25, n=n, block=2_000)
    certificate, _ = smoothed.certify_image(image, 0)
    assert certificate.n == n
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_peak_memory_does_not_grow_with_n() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    few, many = map(int, done.stdout.split())
    assert few > 2**20  # kilobytes were turned into bytes
    assert many - few < MOST_GROWTH
