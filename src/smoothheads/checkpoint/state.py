"""Training state for resuming: one safetensors file whose header carries the plain numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open

from smoothheads.config import parse_json
from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.files import write_atomic
from smoothheads.training.loop import TrainState


def save_state(path: Path, state: TrainState, **facts: Any) -> None:
    """Replaces the file atomically; `facts` are kept beside the state and returned by `load_state`."""
    header = {"meta": json.dumps(state.meta), "facts": json.dumps(facts)}
    write_atomic(path, safetensors.torch.save({k: v.contiguous() for k, v in state.tensors.items()}, header))


def load_state(path: Path) -> tuple[TrainState, dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        meta, facts = (parse_json(header[key], f"{key} of {path}") for key in ("meta", "facts"))
        return TrainState(tensors, meta), facts
    except (SafetensorError, OSError, KeyError, ValueError, ConfigError) as error:
        raise CheckpointError(
            f"a training state in {path}", str(error), "train again without --resume"
        ) from None
