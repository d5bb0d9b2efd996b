"""Checkpoints: safe, self-describing, whole or absent."""

from smoothheads.checkpoint.join import join
from smoothheads.checkpoint.state import load_state, save_state
from smoothheads.checkpoint.weights import Checkpoint, load, save, verified_manifest

__all__ = ["Checkpoint", "join", "load", "load_state", "save", "save_state", "verified_manifest"]
