"""Checkpoints: safe, self-describing, whole or absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smoothheads.checkpoint.folder import verified_manifest
from smoothheads.lazy import attributes

if TYPE_CHECKING:
    from smoothheads.checkpoint.state import load_state as load_state
    from smoothheads.checkpoint.state import save_state as save_state
    from smoothheads.checkpoint.weights import Checkpoint as Checkpoint
    from smoothheads.checkpoint.weights import load as load
    from smoothheads.checkpoint.weights import save as save
else:
    homes = {"state": "load_state save_state", "weights": "Checkpoint load save"}
    __getattr__ = attributes(__name__, homes)

__all__ = ["verified_manifest"]
