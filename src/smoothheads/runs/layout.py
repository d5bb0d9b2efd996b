"""Where things lie in the folder of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from smoothheads import checkpoint
from smoothheads.checkpoint.folder import FOLDER, checkpoint_folder

if TYPE_CHECKING:
    from smoothheads.checkpoint import Checkpoint

CHECKPOINT, CONFIG, METRICS, STATE = FOLDER, "config.json", "metrics.jsonl", "state.safetensors"
PREPARED = "prepared.safetensors"
ENGINES, LEDGER = "engines", "ledger"


def open_checkpoint(path: Path | str) -> Checkpoint:
    return checkpoint.load(path)


def engines_folder(path: Path | str) -> Path:
    """Where the networks lie that were converted for an engine: beside the checkpoint."""
    return checkpoint_folder(path).absolute().parent / ENGINES
