"""Where things lie in the folder of a training run."""

from __future__ import annotations

from pathlib import Path

from smoothheads import checkpoint
from smoothheads.checkpoint import Checkpoint

CONFIG, METRICS, STATE, CHECKPOINT = "config.json", "metrics.jsonl", "state.safetensors", "checkpoint"
PREPARED = "prepared.safetensors"
ENGINES, LEDGER = "engines", "ledger"


def open_checkpoint(path: Path | str) -> Checkpoint:
    """The checkpoint in a folder, or the one inside a training run's folder."""
    return checkpoint.load(checkpoint_folder(path))


def checkpoint_folder(path: Path | str) -> Path:
    path = Path(path)
    return path / CHECKPOINT if (path / CHECKPOINT).is_dir() else path


def engines_folder(path: Path | str) -> Path:
    """Where the networks lie that were converted for an engine: beside the checkpoint."""
    return checkpoint_folder(Path(path).absolute()).parent / ENGINES
