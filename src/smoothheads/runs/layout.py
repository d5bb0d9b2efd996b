"""Where things lie in the folder of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from smoothheads import checkpoint
from smoothheads.checkpoint.folder import FOLDER as CHECKPOINT
from smoothheads.checkpoint.folder import checkpoint_folder

if TYPE_CHECKING:
    from smoothheads.checkpoint import Checkpoint

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "ENGINES",
    "LEDGER",
    "METRICS",
    "PREPARED",
    "STATE",
    "checkpoint_folder",
    "engines_folder",
    "open_checkpoint",
]

CONFIG, METRICS, STATE = "config.json", "metrics.jsonl", "state.safetensors"
PREPARED = "prepared.safetensors"
ENGINES, LEDGER = "engines", "ledger"


def open_checkpoint(path: Path | str) -> Checkpoint:
    return checkpoint.load(path)


def engines_folder(path: Path | str) -> Path:
    """Where the networks lie that were converted for an engine: beside the checkpoint."""
    return checkpoint_folder(path).absolute().parent / ENGINES
