"""Checkpoints: safe, self-describing, complete or absent."""

from smoothheads.checkpoint.folder import (
    CONFIG,
    FOLDER,
    MANIFEST,
    WEIGHTS,
    Checkpoint,
    checkpoint_folder,
    description,
    load,
    load_state,
    save,
    save_state,
    trained_config,
    verified_manifest,
)

__all__ = [
    "CONFIG",
    "FOLDER",
    "MANIFEST",
    "WEIGHTS",
    "Checkpoint",
    "checkpoint_folder",
    "description",
    "load",
    "load_state",
    "save",
    "save_state",
    "trained_config",
    "verified_manifest",
]
