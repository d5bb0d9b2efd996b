from __future__ import annotations

from pathlib import Path

import pytest
import torch

from smoothheads.checkpoint import load_state, save_state
from smoothheads.errors import CheckpointError
from smoothheads.training.loop import TrainState


def test_state_comes_back_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    tensors = {"a": torch.randn(3, 4).to(memory_format=torch.contiguous_format), "b": torch.tensor(7)}
    meta = {"epoch": 3, "meter": {"sums": {"loss": [0.1 + 0.2, 1e-300]}}}
    save_state(path, TrainState(tensors, meta), metrics_size=12)
    state, facts = load_state(path)
    assert all(torch.equal(state.tensors[name], tensors[name]) for name in tensors)
    assert state.meta == meta
    assert facts == {"metrics_size": 12}


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_state(path, TrainState({"a": torch.ones(100)}, {}))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CheckpointError, match=r"a training state in .* without --resume"):
        load_state(path)
